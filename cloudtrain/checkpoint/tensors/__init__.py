"""The tensors of a state, whatever framework made them, and their copies in host memory."""

from __future__ import annotations

__all__: list[str] = []
