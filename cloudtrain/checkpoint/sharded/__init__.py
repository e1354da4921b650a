"""Checkpoints that all ranks save and restore together."""

from __future__ import annotations

__all__: list[str] = []
