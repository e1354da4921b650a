"""The errors that this package tells apart itself; a user sees `CheckpointError`."""

from __future__ import annotations

from cloudtrain.errors import CheckpointError


class Damaged(CheckpointError):
    """Bytes of a checkpoint are missing, or are not those that were saved."""


class Unsupported(Exception):
    """A value that cannot be saved as it is. The text goes on after "... is ": ``a sparse tensor``."""
