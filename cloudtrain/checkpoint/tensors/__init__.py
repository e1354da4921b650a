"""The tensors of a state, of any framework, and their copies in host memory."""

from __future__ import annotations

__all__: list[str] = []
