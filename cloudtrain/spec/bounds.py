"""Bounds of job descriptions: what is larger is a mistake, or an attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import InvalidJob

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
"""Characters of a name that a message shows."""

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
