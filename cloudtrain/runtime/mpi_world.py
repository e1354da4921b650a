"""Notices that MPI's world is not the job's, when the script initialises MPI with mpi4py.

If the MPI of the script and the ``--mpi`` of srun do not fit, every rank is rank 0 of another world: all train alone,
and all succeed.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MODULE = "mpi4py.MPI"


class WorldCheck(importlib.abc.MetaPathFinder):
    """Checks the size of the world right after the import of `MODULE`, which initialises MPI."""

    def __init__(self, expected: int) -> None:
        self._expected = expected

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, expected = spec.loader, self._expected
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            check(module, expected)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def check(mpi: ModuleType, expected: int) -> None:
    """Raises RuntimeError if MPI is initialised and its world has another size."""
    if not mpi.Is_initialized():
        return
    size = mpi.COMM_WORLD.Get_size()
    if size != expected:
        library = mpi.Get_library_version().partition(",")[0].strip("\0\n")
        raise RuntimeError(
            f"MPI has a world of {size} ranks, but the job has {expected}: {library} "
            "does not fit platform_options.launcher_srun. Open MPI needs pmix, MPICH pmi2; or leave it out"
        )


def check_world(expected: int) -> None:
    """Check MPI's world as soon as the script imports mpi4py."""
    sys.meta_path.insert(0, WorldCheck(expected))
