"""Horovod's names import cloudtrain."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path

import mxnet as mx

import cloudtrain.distributed.mxnet as hvd


def case_the_names_of_horovod() -> None:
    horovod = import_module("horovod.mxnet")
    for name in hvd.__all__:
        assert getattr(horovod, name) is getattr(hvd, name), name
    for module, name in (
        ("mpi_ops", "allreduce_"),
        ("functions", "broadcast_object"),
        ("compression", "Compression"),
    ):
        assert getattr(import_module(f"horovod.mxnet.{module}"), name) is getattr(hvd, name)


def case_a_timeline_of_what_mxnet_sends() -> None:
    with tempfile.TemporaryDirectory() as folder:
        hvd.start_timeline(f"{folder}/trace.json")
        hvd.allreduce(mx.nd.ones(3), name="the mean of the loss")
        hvd.stop_timeline()
        written = "".join(path.read_text() for path in Path(folder).iterdir())
    assert hvd.size() == 1 or "the mean of the loss" in written
