"""Arrays over an MPI communicator, by mpi4py: without torch, and without a port that ranks have to know."""

from cloudtrain.distributed.errors import InvalidArgument

try:
    import mpi4py.MPI  # noqa: F401 - opens the MPI library
except (ImportError, RuntimeError) as error:
    raise InvalidArgument(
        f"backend 'mpi' needs mpi4py, which cannot be imported: {error}",
        hint="pip install mpi4py; where it finds no MPI library, set MPI4PY_LIBMPI to your libmpi.so.",
    ) from error
