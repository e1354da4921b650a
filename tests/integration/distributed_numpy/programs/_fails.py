"""The last rank fails in the way given as second argument."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module

import numpy as np

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed import World

START_TIMEOUTS = {"starts late": 3.0}
TIMEOUTS = {"hangs": 2.0}


def main(backend: str, way: str) -> None:
    if way == "starts late":
        if backend == "mpi":
            # MPI's own start waits for all ranks, without a timeout
            import_module("mpi4py.MPI")
        if World.from_environ().rank == 1:
            time.sleep(8)
    hvd.init(backend=backend, start_timeout=START_TIMEOUTS.get(way, 240.0), timeout=TIMEOUTS.get(way, 120.0))
    last = hvd.rank() == hvd.size() - 1
    hvd.allreduce(np.ones(3), name="warm-up")
    if way == "killed" and last:
        hvd.allreduce_async(np.ones(1 << 20), name="large")
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "hangs" and last:
        time.sleep(8)
    if way == "leaves" and last:
        hvd.shutdown()
        return
    try:
        hvd.allreduce(np.ones(1 << 20), name="large")
    except hvd.CollectiveError as error:
        print(f"rank {hvd.rank()}: {error}", flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(*sys.argv[1:])
