"""The public names that the APIs of PyTorch, NumPy, TensorFlow and MXNet have in common."""

from cloudtrain.distributed._timeline import start_timeline, stop_timeline
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument, NotInitialized
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum

HorovodInternalError = CollectiveError
"""Horovod's name for CollectiveError."""

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "HorovodInternalError",
    "InvalidArgument",
    "Max",
    "Min",
    "NotInitialized",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "start_timeline",
    "stop_timeline",
]
