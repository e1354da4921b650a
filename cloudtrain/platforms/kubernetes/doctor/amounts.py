"""Amounts in Kubernetes' notation, as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:(m|u|n|[kMGTPE]i?)|[eE]([+-]?[0-9]+))?")
_SCALE = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
    "ki": Fraction(1024),
}


def amount(value: object) -> Fraction:
    """The number that a quantity such as ``500m``, ``4`` or ``32Gi`` is; 0 for what is not a quantity."""
    found = _QUANTITY.fullmatch(str(value).strip())
    try:
        if not found:
            return Fraction(0)
        number = Fraction(found[1])
        return number * (
            Fraction(10) ** int(found[3]) if found[3] else _SCALE.get(found[2] or "", Fraction(0))
        )
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


def shown(resource: str, value: Fraction) -> str:
    """An amount for people: memory in GiB."""
    if "memory" in resource or "storage" in resource or resource.startswith("hugepages"):
        return f"{float(value / 2**30):.4g} GiB"
    return f"{float(value):.6g}"


def requests_of(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """The requests of a pod, of all its containers together."""
    return _total(spec, "requests", "limits")


def limits_of(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """The limits of a pod's containers together."""
    return _total(spec, "limits")


def _total(spec: Mapping[str, Any], *fields: str) -> dict[str, Fraction]:
    """The sum over the containers of the first of ``fields`` that has a resource: a limit alone is a request, too."""
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or []:
        given = container.get("resources") or {}
        merged: dict[str, Any] = {}
        for field in reversed(fields):
            merged.update(given.get(field) or {})
        for name, value in merged.items():
            total[name] = total.get(name, Fraction(0)) + amount(value)
    return total
