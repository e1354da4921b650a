"""Horovod's names lead here."""

from __future__ import annotations

from importlib import import_module

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
