"""``init`` after ``shutdown``, and handles that are never waited for."""

from __future__ import annotations

import sys

import numpy as np

import cloudtrain.distributed.numpy as hvd


def main(backend: str) -> None:
    for _ in range(3):
        assert not hvd.is_initialized()
        hvd.init(process_sets=[hvd.ProcessSet([0])], backend=backend, start_timeout=240, timeout=120)
        assert hvd.process_set_by_id(1).ranks == [0]
        assert hvd.allreduce(np.ones(9000), op=hvd.Sum)[0] == hvd.size()
        hvd.allreduce_async(np.ones(9000), name="never waited for")
        hvd.barrier()
        hvd.shutdown()
    try:
        hvd.rank()
    except hvd.NotInitialized as error:
        print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
