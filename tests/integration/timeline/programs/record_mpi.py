"""One of two ranks started by mpirun and recorded through HOROVOD_TIMELINE."""

from __future__ import annotations

import numpy as np

import cloudtrain.distributed.numpy as hvd

hvd.init(backend="mpi")
hvd.allreduce(np.ones(9000), name="large")
hvd.allreduce(np.ones(3), name="small")
hvd.shutdown()
