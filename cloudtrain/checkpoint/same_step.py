"""Checks that ranks which restore for themselves restore the same step, as training needs equal states.

Nothing here waits for another rank, because a rank may restore alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Sequence
from typing import Any

from cloudtrain import environment
from cloudtrain.contract.rank import LauncherEnv, with_rank
from cloudtrain.environment.job import process_group
from cloudtrain.errors import CheckpointError


def on_several_hosts() -> bool:
    """Whether there are ranks that may not have access to the folders of this machine."""
    environ = with_rank(os.environ)
    local_size = environ.get(LauncherEnv.detect(environ).local_size, "1")
    return local_size.isdecimal() and environment.world_size() > int(local_size)


class SameStep:
    """Compares the steps that the ranks restore first from ``uri``.

    The ranks compare them through the store of ``torch.distributed``; without a process group, those of each host
    through its run folder. Ranks on several hosts then restore only steps in the storage, which all of them can list.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._key = f"cloudtrain-restored/{uri}"
        self._compared = self._saved = False

    def check(self, wanted: int | str, step: int | None) -> None:
        """Compare the first restored step, None for no checkpoint, with that of the rank that restored before.

        Raises CheckpointError if it differs, unless a rank has saved since then.
        """
        store = None if self._compared else _store()
        self._compared = True
        if store is None:
            return
        own = "no checkpoint" if step is None else f"step {step}"
        try:
            first = store.compare_set(f"{self._key}/{wanted}", "", f"{environment.rank()} {own}").decode()
            if store.check([f"{self._key}/saved"]):
                return
        except (RuntimeError, OSError):  # the host of the store has ended
            return
        rank, _, other = first.partition(" ")
        if other != own:
            raise CheckpointError(
                f"rank {rank} has restored {other} from {self._uri}, but this rank {own}",
                hint="All ranks must see the same checkpoints. If they cannot, let rank 0 restore for all: "
                "restore_or_broadcast, or restore(alone=True) and a broadcast.",
            )

    def saving(self) -> None:
        """Stop comparing: from the first save on, another step may be restored."""
        store = None if self._saved else _store()
        if store is not None:
            self._saved = True
            with contextlib.suppress(RuntimeError, OSError):
                store.set(f"{self._key}/saved", "1")


class _RunFolder:
    """The part of the store of ``torch.distributed`` that is used here, as files that the ranks of one host share.

    Methods raise OSError.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def compare_set(self, key: str, _expected: str, value: str) -> bytes:
        """Set ``key`` if it is not set; returns its value."""
        path, own = self._path(key), f"{self._path(key)}-{os.getpid()}-{threading.get_ident()}"
        with open(own, "w", encoding="utf-8") as file:
            file.write(value)
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
        os.unlink(own)
        with open(path, "rb") as known:
            return known.read()

    def check(self, keys: Sequence[str]) -> bool:
        return all(os.path.exists(self._path(key)) for key in keys)

    def set(self, key: str, value: str) -> None:
        self.compare_set(key, "", value)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"restored-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def _store() -> Any:
    if process_group() is None:
        folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
        return _RunFolder(folder) if folder and environment.world_size() > 1 else None
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()
