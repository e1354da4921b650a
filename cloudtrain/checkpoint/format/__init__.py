"""The format of a checkpoint on storage: its layout, manifest, tree and tensor files."""

from __future__ import annotations

__all__: list[str] = []
