"""Errors that this package handles itself; users see both as `CheckpointError`."""

from __future__ import annotations

from cloudtrain.errors import CheckpointError


class Damaged(CheckpointError):
    """Part of a checkpoint is missing or differs from what was saved."""


class Unsupported(Exception):
    """A value that cannot be saved. The message completes "... is": ``a sparse tensor``."""
