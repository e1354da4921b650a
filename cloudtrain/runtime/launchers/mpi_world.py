"""Notices that MPI's world is not the job's, when the script initialises MPI with mpi4py.

If the MPI of the script and the ``--mpi`` of srun do not fit, or no launcher of MPI started the ranks, every rank is
rank 0 of another world: all train alone, and all succeed.
"""

from __future__ import annotations

import os
import sys

from cloudtrain.runtime.run_folder import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MODULE = "mpi4py.MPI"


class AfterImport:
    """Calls ``check`` right after the import of `MODULE`, which initialises MPI."""

    def __init__(self, check: Callable[[ModuleType], None]) -> None:
        self._check = check

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._check(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


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

    sys.meta_path.insert(0, AfterImport(check))


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

    sys.meta_path.insert(0, AfterImport(check))


def _size(mpi: ModuleType) -> int:
    """That of MPI's world; 0 if MPI is not initialised."""
    return int(mpi.COMM_WORLD.Get_size()) if mpi.Is_initialized() else 0


def _imported_by_a_package() -> bool:
    """Whether an installed package, other than mpi4py, or cloudtrain executes the import."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        path = frame.f_code.co_filename
        if path != __file__ and not path.startswith("<frozen") and f"{os.sep}mpi4py{os.sep}" not in path:
            return (
                "site-packages" in path
                or "dist-packages" in path
                or path.startswith(f"{LIBRARY}/cloudtrain/")
            )
    return False
