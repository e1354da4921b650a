"""Errors that this package handles itself; users see them as `CheckpointError`."""

from __future__ import annotations

from cloudtrain.errors import CheckpointError


class Damaged(CheckpointError):
    """Part of a checkpoint is missing or differs from what was saved."""


class InUse(Damaged):
    """Another process uses a copy in memory, and may be replacing it."""


class Unsupported(Exception):
    """A value that cannot be saved. The message completes "... is": ``a sparse tensor``."""
