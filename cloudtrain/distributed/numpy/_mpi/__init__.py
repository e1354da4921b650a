"""The MPI backend, over mpi4py. It needs neither torch nor a port agreed on in advance."""

from cloudtrain.distributed.errors import InvalidArgument

try:
    import mpi4py.MPI  # noqa: F401 - loads the MPI library
except (ImportError, RuntimeError) as error:
    raise InvalidArgument(
        f"backend 'mpi' needs mpi4py, which cannot be imported: {error}",
        hint="pip install mpi4py; if it finds no MPI library, set MPI4PY_LIBMPI to your libmpi.so.",
    ) from error
