"""Warns about the training that a job without a checkpoint loses after a notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cloudtrain.contract import Notice
from cloudtrain.errors import StorageError
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.storage import open_store

WORTH_SECONDS = 5.0
"""Less training time is not worth a warning."""


def warn_of_loss(config: HostConfig, notice: Notice, trained: float, warn: Callable[[str], None]) -> None:
    """Warn before the end of a job that has no checkpoint. A thread checks the storage; if that fails, it is silent.

    Args:
        trained: the seconds for which the ranks have run.
    """
    grace = notice.deadline - time.time()

    def look() -> None:
        if trained >= WORTH_SECONDS and not _has_checkpoint(config):
            warn(
                "the job is about to be stopped, and has no checkpoint yet: if the script does not save within "
                f"{grace:.0f} s, its {trained:.0f} s of training are lost"
            )

    threading.Thread(target=look, name="unsaved", daemon=True).start()


def _has_checkpoint(config: HostConfig) -> bool:
    folder = config.paths.checkpoints
    try:
        if any(path.is_file() for path in folder.rglob("*")):
            return True
        uri = config.settings.checkpoint_uri
        return bool(uri) and any(True for _ in open_store(uri).list())
    except (OSError, StorageError):
        return True
