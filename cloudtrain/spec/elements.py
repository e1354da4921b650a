"""The elements of an array of jobs: the fields that each of them sets in the common description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec.conversion import LONGEST_SHOWN
from cloudtrain.spec.documents import parse_yaml, put_field, read_text
from cloudtrain.spec.job import FIELDS
from cloudtrain.spec.names import MAX_LENGTH

Element = Mapping[str, Any]
"""The fields that one element sets, by their dotted paths: ``{"hyperparameters.lr": 0.1}``."""

MOST_ELEMENTS = 10_000
_EXAMPLE = (
    "A list has one mapping for each job: - {hyperparameters.lr: 0.1}. A mapping of lists makes all combinations: "
    "hyperparameters.lr: [0.1, 0.01]"
)


def read_elements(path: Path) -> list[Element]:
    """The elements in a file. Raises InvalidJob."""
    return array_elements(parse_yaml(read_text(path), str(path)), str(path))


def array_elements(values: Any, name: str = "values") -> list[Element]:
    """The elements that ``values`` describe.

    Args:
        values: a list of mappings, one for each element; or a mapping of lists, for all their combinations: the first
            field changes slowest. A value that is not a list is the same in all of them. Nested fields are
            given as dotted paths or mappings.
        name: the name of ``values``, for messages.

    Raises:
        InvalidJob: there is no element, a field does not exist, or it applies to the whole array.

    >>> array_elements({"hyperparameters": {"lr": [0.1, 0.01]}, "instance_count": [1, 2]})[1]
    {'hyperparameters.lr': 0.1, 'instance_count': 2}
    """
    if isinstance(values, Mapping):
        elements = list(_grid(values, name))
    elif isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        if len(values) > MOST_ELEMENTS:
            raise _too_many(name)
        elements = [_element(value, f"{name}: element {number}") for number, value in enumerate(values)]
    else:
        raise InvalidJob(f"{name}: neither a list of mappings nor a mapping of lists", hint=_EXAMPLE)
    if not elements:
        raise InvalidJob(f"{name}: has no elements", hint=_EXAMPLE)
    return elements


def _grid(values: Mapping[str, Any], name: str) -> Iterator[Element]:
    choices = {
        path: value if isinstance(value, list) else [value] for path, value in _element(values, name).items()
    }
    count = 1
    for path, choice in choices.items():
        if not choice:
            raise InvalidJob(f"{name}: {path} has no values", hint="Give it at least one.")
        count *= len(choice)
    if count > MOST_ELEMENTS:
        raise _too_many(name)
    for combination in product(*choices.values()) if choices else ():
        yield dict(zip(choices, combination, strict=True))


def _too_many(name: str) -> InvalidJob:
    return InvalidJob(f"{name}: more than {MOST_ELEMENTS:,} elements", hint="Submit several arrays.")


def _element(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidJob(f"{name}: not a mapping of fields", hint=_EXAMPLE)
    element: dict[str, Any] = {}
    for path, leaf in _leaves(value):
        shown = path[:LONGEST_SHOWN]
        field = path.partition(".")[0]
        if field == "job_name":
            raise InvalidJob(
                f"{name}: the elements of an array are named after it", hint="Name the array: --name NAME"
            )
        if field not in FIELDS:
            hint = f"If it is an option of the script, write hyperparameters.{shown}."
            raise InvalidJob(
                f"{name}: there is no field {shown!r}",
                hint=" ".join(filter(None, (nearest(field, FIELDS), hint))),
            )
        if path in element:
            raise InvalidJob(f"{name}: {shown} is given twice", hint="Give it once.")
        element[path] = leaf
    return element


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, leaf in value.items():
        path = f"{prefix}{key}"
        if isinstance(leaf, Mapping) and leaf and all(isinstance(inner, str) for inner in leaf):
            yield from _leaves(leaf, f"{path}.")
        else:
            yield path, leaf


def with_element(fields: Mapping[str, Any], element: Element) -> dict[str, Any]:
    """``fields``, overridden by those of ``element``. Raises InvalidJob."""
    result = dict(fields)
    for path, value in element.items():
        result = put_field(result, path, value)
    return result


def element_name(name: str, number: int) -> str:
    """The name of an element's job: ``NAME-3``. The first element has number 0, as in arrays of Slurm."""
    return f"{name}-{number}"


def check_array_name(name: str, count: int) -> None:
    """Raises InvalidJob if the names of the elements would be too long."""
    longest = len(element_name(name, count - 1))
    if longest > MAX_LENGTH:
        raise InvalidJob(
            f"the name {name} is too long with the numbers of the elements: {longest} characters of {MAX_LENGTH}",
            hint="Choose a shorter name: --name NAME",
        )
