"""The resources that pods request, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cloudtrain.platforms.kubernetes.quantities import parse_quantity


def amount(value: object) -> Fraction:
    """The number that a quantity is; 0 for what is not a quantity."""
    return parse_quantity(value) or Fraction(0)


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
