"""Suspends main objects: no pod is created, and those that run end."""

from __future__ import annotations

from typing import Any


def suspension(kind: str, suspend: bool) -> dict[str, Any]:
    """The ``spec`` of a patch that suspends a main object of this kind, or lets it run."""
    field = {"suspend": suspend}
    return {"runPolicy": field} if kind == "MPIJob" else field
