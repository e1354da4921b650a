"""Saves MXNet arrays, and restores them into other arrays. Runs in MXNet's environment."""

from __future__ import annotations

import sys

import mxnet as mx
import numpy as np

from cloudtrain.checkpoint import Checkpointer


def main(place: str) -> None:
    arrays = {"float32": mx.nd.arange(6).reshape((2, 3)), "int64": mx.nd.array([1, -2], dtype="int64")}
    with Checkpointer(place) as checkpointer:
        checkpointer.save(1, arrays)
        checkpointer.wait()
        arrays["float32"][:] = 0
        restored = checkpointer.restore().state
        assert restored["float32"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert restored["int64"].dtype == np.int64
        into = {"float32": mx.nd.zeros((2, 3)), "int64": mx.nd.zeros((2,), dtype="int64")}
        assert checkpointer.restore(into=into).state["float32"] is into["float32"]
    assert into["float32"].asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert into["int64"].asnumpy().tolist() == [1, -2]
    print("mxnet", mx.__version__)


main(*sys.argv[1:])
