"""Notices a training script with several ranks that is not distributed: each rank trains the same model on all data.

A distributed script finds out its place among the ranks: it, or a library, reads a variable such as RANK. Libraries
in C do that unseen, and are recognised by their module.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import ItemsView, ValuesView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLACE = re.compile(
    r"(?:(?:HOROVOD|CLOUDTRAIN)_)?(?:(?:LOCAL|GROUP|CROSS|NODE|HOST|ROLE)_)?(?:RANK|WORLD_SIZE|SIZE)"
    r"|MASTER_(?:ADDR|PORT)|TF_CONFIG|SM_(?:HOSTS|CURRENT_HOST)|MPI_LOCALRANKID|(?:DMLC|PMI|PMIX|OMPI_COMM_WORLD)_\w+"
    r"|SLURM_(?:PROCID|NTASKS|LOCALID|NODEID)|JAX_(?:PROCESS_ID|NUM_PROCESSES|COORDINATOR_ADDRESS)"
)
"""The variables that give a rank its place."""

_READ_THEM_OUTSIDE_PYTHON = ("horovod", "mpi4py.MPI", "cloudtrain.distributed")

_TRAINS = {
    "torch": "DistributedDataParallel",
    "tensorflow": "tf.distribute.MultiWorkerMirroredStrategy",
    "jax": "jax.distributed.initialize()",
    "sklearn": "",
    "xgboost": "",
    "lightgbm": "",
}
"""Modules of a training script, each with what distributes it."""


_ALL_VARIABLES = (ItemsView.__iter__.__code__, ValuesView.__iter__.__code__)
"""A library that goes through all variables looks for its own: tqdm does, which many libraries import."""


class Watch:
    """Watches the environment of this rank, one of ``ranks``, from now on."""

    def __init__(self, ranks: str) -> None:
        self._ranks = ranks
        self._process = os.getpid()
        self._encode: Callable[[str], Any] = os.environ.encodekey
        self._place_is_known = False
        os.environ.encodekey = self._look  # every access to a variable calls it

    def _look(self, name: str) -> Any:
        if isinstance(name, str) and _PLACE.fullmatch(name) and sys._getframe(2).f_code not in _ALL_VARIABLES:
            self._place_is_known = True
            os.environ.encodekey = self._encode
        return self._encode(name)

    def warn(self) -> None:
        """Warn if the script, which has ended, is not distributed. Not in a child that it forked."""
        trains = next((name for name in _TRAINS if name in sys.modules), None)
        other = any(name in sys.modules for name in _READ_THEM_OUTSIDE_PYTHON)
        if self._place_is_known or other or trains is None or os.getpid() != self._process:
            return
        use = f"use {_TRAINS[trains]}, or " if _TRAINS[trains] else ""
        sys.stderr.write(
            f"[cloudtrain] WARNING: the script is not distributed: each of the {self._ranks} ranks trained its own "
            f"model on all data. To train one model, {use}start one rank (-np 1; a job: without a distribution)\n"
        )
