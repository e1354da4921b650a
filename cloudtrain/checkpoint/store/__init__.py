"""The checkpoints in one store: what is committed there, saving and reading."""

from __future__ import annotations

__all__: list[str] = []
