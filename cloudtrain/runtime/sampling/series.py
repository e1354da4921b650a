"""Merges several samples into one: the means of rates, the maxima of levels, and the last of all other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MEANS = ("cpu", "disk_read", "disk_write", "network_in", "network_out", "gpu_use", "gpu_power", "rank_data")
LARGEST = ("memory", "rank_memory", "gpu_memory", "gpu_temperature")
PEAKS = ("cpu", "gpu_use")
"""Means whose largest value is also a field: ``cpu_max``, ``gpu_use_max``."""
KEYS = ("gpu", "ranks")
"""Fields that name the elements of lists: ``gpu`` for fields that start with ``gpu_``, ``ranks`` for ``rank_``."""

Values = Mapping[str, Any]


def merge(samples: Sequence[Values]) -> dict[str, Any]:
    """The fields of one sample for the time of all given ones, without unknown values."""
    last = samples[-1]
    alike = {key: [sample for sample in samples if sample.get(key) == last.get(key)] for key in (*KEYS, "")}
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample):
        key = "gpu" if name.startswith("gpu_") else "ranks" if name.startswith("rank_") else ""
        given = [sample.get(name) for sample in alike[key]]
        if name in MEANS:
            merged[name] = _each(given, lambda values: sum(values) / len(values))
            if name in PEAKS:
                merged[f"{name}_max"] = _each(given, max)
        elif name in LARGEST:
            merged[name] = _each(given, max)
        elif name == "gpu_xid":
            merged[name] = _each(given, lambda values: values[-1])
        else:
            merged[name] = last.get(name)
    return {name: _rounded(value) for name, value in merged.items() if _is_known(value)}


def _each(given: Sequence[Any], combine: Any) -> Any:
    """Apply ``combine`` to numbers, or to the numbers at each index of lists. Ignores None."""
    known = [value for value in given if value is not None]
    if not known:
        return None
    if isinstance(known[0], list):
        return [_each(place, combine) for place in zip(*known)]
    return combine(known)


def _is_known(value: Any) -> bool:
    return value is not None and not (isinstance(value, list) and all(item is None for item in value))


def _rounded(value: Any) -> Any:
    """Numbers with three decimals, and whole numbers as integers, to keep the line of a sample short."""
    if isinstance(value, list):
        return [*map(_rounded, value)]
    if isinstance(value, float):
        return int(value) if abs(value) >= 1000 or value.is_integer() else round(value, 3)
    return value
