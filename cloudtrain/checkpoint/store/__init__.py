"""The checkpoints in one store: which ones are committed, saving and reading."""

from __future__ import annotations

__all__: list[str] = []
