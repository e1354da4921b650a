"""Horovod's module names for cloudtrain's collectives: a script written for Horovod runs unchanged.

    import horovod.torch as hvd

In cloudtrain's ranks, the parent folder is the last entry of ``sys.path``. The real Horovod takes precedence where
it is installed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.28.1+cloudtrain"

_OBJECTS = "allgather_object broadcast_object"
_COMPRESSION = "Compression Compressor Compression.none=NoneCompressor Compression.fp16=FP16Compressor"
_MODULES = {
    "common.elastic": ".torch.elastic: ObjectState State",
    "common.exceptions": ".errors: CollectiveError=HorovodInternalError HostsUpdatedInterrupt",
    "keras": ".keras: *",
    "keras.callbacks": ".keras.callbacks: *",
    "keras.elastic": ".keras.elastic: *",
    "mxnet": ".mxnet: *",
    "mxnet.compression": f".mxnet: {_COMPRESSION}",
    "mxnet.functions": f".mxnet: {_OBJECTS}",
    "mxnet.mpi_ops": ".mxnet: *",
    "tensorflow": ".tensorflow: *; tensorflow: executing_eagerly=_executing_eagerly",
    "tensorflow.compression": f".tensorflow: {_COMPRESSION}",
    "tensorflow.elastic": ".tensorflow.elastic: *",
    "tensorflow.functions": f".tensorflow: {_OBJECTS} broadcast_object_fn broadcast_variables",
    "tensorflow.keras": ".tensorflow.keras: *",
    "tensorflow.keras.callbacks": ".tensorflow.keras.callbacks: *",
    "tensorflow.keras.elastic": ".tensorflow.keras.elastic: *",
    "tensorflow.mpi_ops": ".tensorflow: *",
    "tensorflow.util": "tensorflow: executing_eagerly=_executing_eagerly",
    "torch": ".torch: *",
    "torch.compression": f".torch: {_COMPRESSION}",
    "torch.elastic": ".torch.elastic: *",
    "torch.elastic.sampler": ".torch.elastic: ElasticSampler",
    "torch.elastic.state": ".torch.elastic: TorchState",
    "torch.functions": f".torch: {_OBJECTS} broadcast_object_fn broadcast_optimizer_state broadcast_parameters",
    "torch.mpi_ops": ".torch: *",
    "torch.optimizer": ".torch: DistributedOptimizer",
    "torch.sync_batch_norm": ".torch: SyncBatchNorm",
}
"""For each module of Horovod, a module and the names to import from it: all, or some, with ``ours=theirs`` to rename.

A module that begins with a dot is one of `cloudtrain.distributed`.
"""


class _Importer(MetaPathFinder, Loader):
    """Creates the `_MODULES` when they are imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        if package != __name__ or module not in _MODULES:
            return None
        holds_modules = any(other.startswith(f"{module}.") for other in _MODULES)
        return ModuleSpec(name, self, is_package=holds_modules)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        for source in _MODULES[name.partition(".")[2]].split("; "):
            path, _, wanted = source.partition(": ")
            ours = import_module(path, "cloudtrain.distributed")
            module.__dict__.setdefault("__file__", getattr(ours, "__file__", None))
            for each in ours.__all__ if wanted == "*" else wanted.split():
                ours_name, _, theirs = each.partition("=")
                value: Any = ours
                for part in ours_name.split("."):
                    value = getattr(value, part)
                setattr(module, theirs or ours_name, value)
            if wanted == "*" and hasattr(module, "__path__"):
                vars(module)["check_extension"] = import_module(f"{__name__}.common.util").check_extension
                vars(module)["__getattr__"] = _lazily(name, ours)


def _lazily(name: str, ours: ModuleType) -> Any:
    """``__getattr__`` of a package: its modules, and what cloudtrain's module imports on first use."""

    def get(attribute: str) -> Any:
        if f"{name}.{attribute}".partition(".")[2] in _MODULES:
            return import_module(f"{name}.{attribute}")
        if attribute.startswith("__"):  # such as __all__: `import *` takes all public names
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(ours, attribute)

    return get


sys.meta_path.insert(0, _Importer())  # precedes folders that an earlier version may have left
