"""Validation by msgspec, and bounds of job descriptions: larger ones are mistakes or attacks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from cloudtrain.errors import InvalidJob

T = TypeVar("T")

_ALONE = threading.RLock()
"""msgspec inspects a type at the first conversion to it. Two threads that do so at the same time crash the process."""


def convert(value: Any, kind: type[T], where: str = "") -> T:
    """Convert ``value``, which consists of dicts, lists and scalars, to a ``kind``.

    Args:
        where: the path of ``value`` itself, for messages.

    Raises:
        InvalidJob: ``value`` is not valid. The message starts with the path: ``inputs.train.s3_data: ...``.
    """
    try:
        with _ALONE:
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        from cloudtrain.spec.explain import explain  # slow to import

        raise explain(str(error), value, kind, where) from None


DEFAULT_MAX_RUN = 86400
"""The ``max_run`` of SageMaker's SDK, in seconds; the default also on machines without a scheduler."""
LARGEST_DOCUMENT = 4 << 20
"""In bytes. A job may have 1 MiB of arguments."""
DEEPEST = 64
"""Levels of lists and mappings."""
MOST_VALUES = 100_000
"""Values, with aliases written out."""
MOST_CHARACTERS = 16 << 20
"""Characters of all values, with aliases written out."""
LONGEST_SHOWN = 60
"""The most characters of a name in a message."""

REDUCE = "Put large data into a file in source_dir, or into an input channel."


def check_values(fields: Mapping[str, Any]) -> None:
    """Raises InvalidJob if a field of a job is too deep, contains itself, or has too many values.

    Other functions may recurse into values that were checked.
    """
    for name, field in fields.items():
        found = 0
        stack = [(field, 1)]
        while stack:
            value, depth = stack.pop()
            found += 1
            if not isinstance(value, (Mapping, list, tuple)):
                continue
            if depth > DEEPEST:
                raise InvalidJob(f"{name}: is nested more than {DEEPEST} levels deep", hint=REDUCE)
            if found + len(stack) + len(value) > MOST_VALUES:
                raise InvalidJob(f"{name}: has more than {MOST_VALUES:,} values", hint=REDUCE)
            stack += [(item, depth + 1) for item in (value.values() if isinstance(value, Mapping) else value)]
