"""Horovod's collectives on NumPy arrays and anything convertible to one, such as JAX arrays.

    import cloudtrain.distributed.numpy as hvd

    hvd.init()
    total = hvd.allreduce(array, op=hvd.Sum)

The backend is Gloo (needs torch) or MPI (needs mpi4py). Neither package is imported before ``init``.
"""

from cloudtrain.distributed import _names
from cloudtrain.distributed._names import *
from cloudtrain.distributed.numpy import _context, collectives
from cloudtrain.distributed.numpy._backend import Handle
from cloudtrain.distributed.numpy._context import *
from cloudtrain.distributed.numpy.collectives import *

__all__ = ["Handle"]
__all__ += _names.__all__
__all__ += _context.__all__
__all__ += collectives.__all__
__all__.sort()
