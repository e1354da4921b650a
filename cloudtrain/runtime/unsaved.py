"""Reports what a notice costs a job that has no checkpoint yet."""

from __future__ import annotations

from cloudtrain.errors import StorageError
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.storage import open_store

WORTH_SECONDS = 5.0
"""A shorter training is not worth a warning."""


def warn_of_loss(config: HostConfig, trained: float, grace: float) -> str:
    """A warning for a job that is about to end; empty if it has a checkpoint, or if that cannot be found out.

    Args:
        trained: for how many seconds the ranks have run.
        grace: how many seconds they have left.
    """
    if trained < WORTH_SECONDS or _has_checkpoint(config):
        return ""
    return (
        f"the job is about to be stopped, and has no checkpoint yet: if the script does not save within {grace:.0f} s,"
        f" its {trained:.0f} s of training are lost"
    )


def _has_checkpoint(config: HostConfig) -> bool:
    folder = config.paths.checkpoints
    try:
        if any(path.is_file() for path in folder.rglob("*")):
            return True
        uri = config.settings.checkpoint_uri
        return bool(uri) and any(True for _ in open_store(uri).list())
    except (OSError, StorageError):
        return True
