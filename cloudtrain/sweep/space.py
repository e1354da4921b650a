"""The space of a sweep: the possible values of each hyperparameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec.conversion import LONGEST_SHOWN
from cloudtrain.spec.documents import parse_yaml

MOST_COMBINATIONS = 10_000
"""The most trials of a sweep, and therefore the most points of a grid."""
LARGEST = 1e300
"""The largest bound of a range. The difference of two bounds is finite."""
KINDS = ("log", "linear", "int")
_FORMS = "Write a range, such as 1..8, 0.0..0.5 or log:1e-5..1e-1, or choices, such as 2,4,8."


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def at(self, place: float) -> float:
        """The number at ``place``, which is from 0 to below 1. For uniform places, whole numbers are equally likely on
        their scale."""
        margin = 0.5 if self.is_whole else 0.0
        low, high = self.low - margin, self.high + margin
        if self.is_log:
            value = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        else:
            value = low + place * (high - low)
        value = min(max(round(value) if self.is_whole else value, self.low), self.high)
        return int(value) if self.is_whole else float(value)

    def contains(self, value: Any) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high and (not self.is_whole or value == int(value))

    def points(self) -> Sequence[Any] | None:
        """All values; None if there are too many for a grid."""
        if not self.is_whole or self.high - self.low >= MOST_COMBINATIONS:
            return None
        return range(int(self.low), int(self.high) + 1)

    def to_text(self) -> str:
        kind = "log:" if self.is_log else "" if self.is_whole else "linear:"
        return f"{kind}{self.low!r}..{self.high!r}"


@dataclass(frozen=True)
class Choices:
    """A set of texts, numbers and booleans to choose from, without an order."""

    values: tuple[Any, ...]

    def at(self, place: float) -> Any:
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def contains(self, value: Any) -> bool:
        return any(value == one and type(value) is type(one) for one in self.values)

    def points(self) -> Sequence[Any]:
        return self.values


Space = Mapping[str, Range | Choices]


def read_space(given: Mapping[str, Any]) -> dict[str, Range | Choices]:
    """The space that ``given`` describes: a range or choices for each hyperparameter, by name.

    Args:
        given: for each name, text (``log:1e-5..1e-1``, ``1..8``, ``2,4,8``), a list of choices, or a parameter of the
            SageMaker SDK.

    Raises:
        InvalidJob: it is empty, or contains an invalid value; the message names the hyperparameter.

    >>> read_space({"depth": "2,4,8", "lr": "log:1e-5..1e-1"})["lr"]
    Range(low=1e-05, high=0.1, is_log=True, is_whole=False)
    """
    if given and not isinstance(given, Mapping):
        raise InvalidJob(
            "space: not a mapping of hyperparameters to their values", hint="{lr: log:1e-5..1e-1}"
        )
    if not given:
        raise InvalidJob(
            "the space of the sweep is empty: nothing is searched for", hint="--search lr=log:1e-5..1e-1"
        )
    return {str(name): _dimension(str(name)[:LONGEST_SHOWN], value) for name, value in given.items()}


def read_searches(texts: Sequence[str]) -> dict[str, str]:
    """The values in the arguments ``NAME=VALUES`` of the command line, by name. Raises InvalidJob."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator or not name.strip():
            raise InvalidJob(
                f"--search {text[:LONGEST_SHOWN]}: does not have the form NAME=VALUES", hint=_FORMS
            )
        if name in found:
            raise InvalidJob(f"--search {name} is given more than once", hint="Give it once.")
        found[name] = values
    return found


def to_document(space: Space) -> dict[str, Any]:
    """The space as JSON that `read_space` can read."""
    return {name: [*one.values] if isinstance(one, Choices) else one.to_text() for name, one in space.items()}


def combinations(space: Space) -> int:
    """The number of points of the grid. Raises InvalidJob if it has a range without steps, or too many points."""
    count = 1
    for name, one in space.items():
        points = one.points()
        if points is None:
            raise InvalidJob(
                f"search {name}: a grid needs a list of values, not a range of all numbers",
                hint="Write the values with commas, or choose another sampler: --sampler quasi-random",
            )
        count *= len(points)
    if count > MOST_COMBINATIONS:
        raise InvalidJob(
            f"the grid has {count:,} points, {MOST_COMBINATIONS:,} are allowed",
            hint="Use fewer values, or --sampler tpe.",
        )
    return count


def _dimension(name: str, given: Any) -> Range | Choices:
    if isinstance(given, str):
        return _parse(name, given)
    if isinstance(given, (list, tuple)):
        return _choices(name, given)
    if hasattr(given, "min_value"):  # ContinuousParameter, IntegerParameter
        if given.scaling_type == "ReverseLogarithmic":
            raise InvalidJob(
                f"search {name}: only SageMaker searches with the scale ReverseLogarithmic",
                hint="Search for 1 - x with the scale Logarithmic, or use Linear.",
            )
        return _range(
            name,
            given.min_value,
            given.max_value,
            "log" if given.scaling_type == "Logarithmic" else "linear",
            is_whole=type(given).__name__.startswith("Integer"),
        )
    if hasattr(given, "values") and not isinstance(given, Mapping):  # CategoricalParameter
        return _choices(name, given.values)
    raise InvalidJob(f"search {name}: {given!r} is neither a range nor choices", hint=_FORMS)


def _parse(name: str, text: str) -> Range | Choices:
    kind, separator, rest = text.partition(":")
    if separator and kind.strip() in KINDS:
        kind, text = kind.strip(), rest
    else:
        kind = ""
    low, separator, high = text.partition("..")
    if not separator:
        if kind:
            raise InvalidJob(f"search {name}: {kind}: needs a range", hint=_FORMS)
        return _choices(name, [_value(name, part) for part in text.split(",")])
    bounds = [_value(name, part) for part in (low, high)]
    is_whole = kind == "int" or (kind != "linear" and all(isinstance(bound, int) for bound in bounds))
    return _range(name, bounds[0], bounds[1], kind, is_whole=is_whole)


def _value(name: str, text: str) -> Any:
    if not text.strip():
        raise InvalidJob(f"search {name}: a value is missing", hint=_FORMS)
    value = parse_yaml(text.strip(), f"search {name}")
    if isinstance(value, (dict, list)) or value is None:
        raise InvalidJob(f"search {name}: {text.strip()[:LONGEST_SHOWN]} is not a value", hint=_FORMS)
    return value


def _range(name: str, low: Any, high: Any, kind: str, *, is_whole: bool) -> Range:
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not abs(bound) <= LARGEST:
            shown = str(bound)[:LONGEST_SHOWN]
            raise InvalidJob(f"search {name}: {shown} is not a finite number up to {LARGEST:g}", hint=_FORMS)
        if is_whole and bound != int(bound):
            raise InvalidJob(f"search {name}: {bound} is not a whole number", hint=_FORMS)
    if low >= high:
        raise InvalidJob(f"search {name}: {low} is not less than {high}: the range is empty", hint=_FORMS)
    if kind == "log" and low <= 0:
        raise InvalidJob(
            f"search {name}: a logarithmic range cannot begin at {low}", hint="Begin above 0, or use linear:"
        )
    number = int if is_whole else float
    return Range(number(low), number(high), kind == "log", is_whole)


def _choices(name: str, values: Sequence[Any]) -> Choices:
    found: list[Any] = []
    for value in values:
        if not isinstance(value, (str, int, float, bool)) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise InvalidJob(
                f"search {name}: {value!r} is not text, a finite number or a boolean", hint=_FORMS
            )
        if Choices(tuple(found)).contains(value):
            raise InvalidJob(f"search {name}: {value!r} is there twice", hint="Give each value once.")
        found.append(value)
    if len(found) < 2:
        raise InvalidJob(
            f"search {name}: one value is not a choice",
            hint=f"Set it for all trials: --set hyperparameters.{name}=VALUE",
        )
    return Choices(tuple(found))
