"""Detects ranks that do not train together because MPI's world is wrong or the script is not distributed.

If the script's MPI does not match srun's ``--mpi``, or no MPI launcher started the ranks, every rank is rank 0 of a
separate world: each trains alone, and all succeed.
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
    """Make the import of mpi4py raise RuntimeError if the size of MPI's world is not ``expected``."""

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
    """Make the script's import of mpi4py warn if each rank's world has one process, because no MPI launcher ran.

    Libraries that import mpi4py only to detect MPI, such as DeepSpeed, cause no warning.
    """

    def check(mpi: ModuleType) -> None:
        if _size(mpi) == 1 and not _imported_by_a_package():
            sys.stderr.write(
                f"[cloudtrain] WARNING: the world of mpi4py has one process in each of the {os.environ['WORLD_SIZE']} "
                "ranks: to have one world, let mpirun start them (cloudtrain run --mpi; a job: --mpirun)\n"
            )

    sys.meta_path.insert(0, AfterImport(MODULE, check))


def _size(mpi: ModuleType) -> int:
    """The size of MPI's world; 0 if MPI is not initialised."""
    return int(mpi.COMM_WORLD.Get_size()) if mpi.Is_initialized() else 0


def _imported_by_a_package() -> bool:
    """Whether cloudtrain, or an installed package other than mpi4py, executes the import."""
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
"""Modules of a training script, each with the API that distributes the training."""


_ALL_VARIABLES = (ItemsView.__iter__.__code__, ValuesView.__iter__.__code__)
"""The code of iteration over all variables. It does not mean that a library wants the rank's place: tqdm, which many
libraries import, searches for its own variables in this way."""


class PlaceWatch:
    """Detects a script with several ranks that is not distributed: each rank trains the same model on all data.

    In a distributed script, the script or a library reads a rank's place from a variable such as RANK. Python cannot
    observe this for libraries in C, which are therefore recognised by their modules.

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
        """Warn if the script, which has ended, was not distributed. Does nothing in a child that the script forked."""
        trains = next((name for name in _TRAINS if name in sys.modules), None)
        other = any(name in sys.modules for name in _READ_THEM_OUTSIDE_PYTHON)
        if self._place_is_known or other or trains is None or os.getpid() != self._process:
            return
        use = f"use {_TRAINS[trains]}, or " if _TRAINS[trains] else ""
        sys.stderr.write(
            f"[cloudtrain] WARNING: the script is not distributed: each of the {self._ranks} ranks trained its own "
            f"model on all data. To train one model, {use}start one rank (-np 1; a job: without a distribution)\n"
        )
