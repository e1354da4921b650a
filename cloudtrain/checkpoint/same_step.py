"""Ranks that restore for themselves must restore the same step: training continues with equal gradients only.

Nothing here waits for another rank, because a rank may restore alone.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from cloudtrain import environment
from cloudtrain.contract.rank import LauncherEnv, with_rank
from cloudtrain.environment.job import process_group
from cloudtrain.errors import CheckpointError


def on_several_hosts() -> bool:
    """Whether there are ranks that may not see the folders of this machine."""
    environ = with_rank(os.environ)
    local_size = environ.get(LauncherEnv.detect(environ).local_size, "1")
    return local_size.isdecimal() and environment.world_size() > int(local_size)


class SameStep:
    """Compares what the ranks restore first from ``uri``, through the store of ``torch.distributed``."""

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
        except RuntimeError:  # the host of the store has ended
            return
        rank, _, other = first.partition(" ")
        if other != own:
            raise CheckpointError(
                f"rank {rank} has restored {other} from {self._uri}, but this rank {own}",
                hint="All ranks must see the same checkpoints. If they cannot, let rank 0 restore for all: "
                "restore_or_broadcast, or restore(alone=True) and a broadcast.",
            )

    def saving(self) -> None:
        """The step that is restored from now on may be another one."""
        store = None if self._saved else _store()
        if store is not None:
            self._saved = True
            with contextlib.suppress(RuntimeError):
                store.set(f"{self._key}/saved", "1")


def _store() -> Any:
    if process_group() is None:
        return None
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()
