"""Notices that the ranks of a job do not train together: MPI has another world, or the script is not distributed.

If the MPI of the script and the ``--mpi`` of srun do not fit, or no launcher of MPI started the ranks, every rank is
rank 0 of another world: all train alone, and all succeed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import ItemsView, ValuesView

from cloudtrain._system.patterns import pattern
from cloudtrain.runtime.after_import import AfterImport
from cloudtrain.runtime.run_folder import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

MODULE = "mpi4py.MPI"


def check_world(expected: int) -> None:
    """Have the import of mpi4py raise RuntimeError if MPI's world has another size."""

    def check(mpi: ModuleType) -> None:
        size = _size(mpi)
        if size not in (0, expected):
            library = mpi.Get_library_version().partition(",")[0].strip("\0\n")
            raise RuntimeError(
                f"MPI has a world of {size} ranks, but the job has {expected}: {library} "
                "does not fit platform_options.launcher_srun. Open MPI needs pmix, MPICH pmi2; or leave it out"
            )

    sys.meta_path.insert(0, AfterImport(MODULE, check))


def warn_of_worlds_of_one() -> None:
    """Have the script's import of mpi4py warn if the world of each rank has one process: no launcher of MPI ran.

    Libraries that import mpi4py to look for MPI, as DeepSpeed does, and do without it, cause no warning.
    """

    def check(mpi: ModuleType) -> None:
        if _size(mpi) == 1 and not _imported_by_a_package():
            sys.stderr.write(
                f"[cloudtrain] WARNING: the world of mpi4py has one process in each of the {os.environ['WORLD_SIZE']} "
                "ranks: to have one world, let mpirun start them (cloudtrain run --mpi; a job: --mpirun)\n"
            )

    sys.meta_path.insert(0, AfterImport(MODULE, check))


def _size(mpi: ModuleType) -> int:
    """That of MPI's world; 0 if MPI is not initialised."""
    return int(mpi.COMM_WORLD.Get_size()) if mpi.Is_initialized() else 0


def _imported_by_a_package() -> bool:
    """Whether an installed package, other than mpi4py, or cloudtrain executes the import."""
    own = (__file__, AfterImport.find_spec.__code__.co_filename)
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        path = frame.f_code.co_filename
        if path not in own and not path.startswith("<frozen") and f"{os.sep}mpi4py{os.sep}" not in path:
            return (
                "site-packages" in path
                or "dist-packages" in path
                or path.startswith(f"{LIBRARY}/cloudtrain/")
            )
    return False


_PLACE = pattern(
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


class PlaceWatch:
    """Notices a script with several ranks that is not distributed: each rank trains the same model on all data.

    A distributed script finds out its place among the ranks: it, or a library, reads a variable such as RANK. Libraries
    in C do that unseen, and are recognised by their module.

    Watches the environment of this rank, one of ``ranks``, from now on.
    """

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
