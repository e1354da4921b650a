"""A communicator with half of the ranks that mpirun started becomes the world."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import cloudtrain.distributed.numpy as hvd

if __name__ == "__main__":
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
    hvd.init(half, start_timeout=240, timeout=120)
    assert (hvd.rank(), hvd.size()) == (half.rank, half.size)
    assert hvd.allreduce(np.ones(9000), op=hvd.Sum)[0] == half.size
