"""One of two ranks that mpirun has started, and that HOROVOD_TIMELINE has recorded."""

from __future__ import annotations

import numpy as np

import cloudtrain.distributed.numpy as hvd

hvd.init(backend="mpi")
hvd.allreduce(np.ones(9000), name="large")
hvd.allreduce(np.ones(3), name="small")
hvd.shutdown()
