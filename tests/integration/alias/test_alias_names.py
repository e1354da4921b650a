"""All names of horovod.torch 0.28.1 exist, with the same parameters in the same order."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloudtrain

ALIAS = Path(cloudtrain.__file__).parent / "alias"

REDUCED = "op=None, prescale_factor=1.0, postscale_factor=1.0, process_set"
SCATTERED = "op, process_set, prescale_factor=1.0, postscale_factor=1.0"
SIGNATURES = {
    "add_process_set": "process_set",
    "allgather": "tensor, name=None, process_set",
    "allgather_async": "tensor, name=None, process_set",
    "allgather_object": "obj, name=None",
    "allreduce": f"tensor, average=None, name=None, compression, {REDUCED}",
    "allreduce_": f"tensor, average=None, name=None, {REDUCED}",
    "allreduce_async": f"tensor, average=None, name=None, {REDUCED}",
    "allreduce_async_": f"tensor, average=None, name=None, {REDUCED}",
    "alltoall": "tensor, splits=None, name=None, process_set",
    "alltoall_async": "tensor, splits=None, name=None, process_set",
    "barrier": "process_set",
    "broadcast": "tensor, root_rank, name=None, process_set",
    "broadcast_": "tensor, root_rank, name=None, process_set",
    "broadcast_async": "tensor, root_rank, name=None, process_set",
    "broadcast_async_": "tensor, root_rank, name=None, process_set",
    "broadcast_object": "obj, root_rank=0, name=None, process_set",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_parameters": "params, root_rank",
    "ccl_built": "",
    "cross_rank": "",
    "cross_size": "",
    "cuda_built": "",
    "ddl_built": "",
    "gloo_built": "",
    "gloo_enabled": "",
    "grouped_allgather": "tensors, name=None, process_set",
    "grouped_allgather_async": "tensors, name=None, process_set",
    "grouped_allreduce": f"tensors, average=None, name=None, compression, {REDUCED}",
    "grouped_allreduce_": f"tensors, average=None, name=None, {REDUCED}",
    "grouped_allreduce_async": f"tensors, average=None, name=None, {REDUCED}",
    "grouped_allreduce_async_": f"tensors, average=None, name=None, {REDUCED}",
    "grouped_reducescatter": f"tensors, name=None, compression, {SCATTERED}",
    "grouped_reducescatter_async": f"tensors, name=None, {SCATTERED}",
    "init": "comm=None, process_sets=None",
    "is_initialized": "",
    "join": "device=-1",
    "local_rank": "",
    "local_size": "",
    "mpi_built": "",
    "mpi_enabled": "",
    "mpi_threads_supported": "",
    "nccl_built": "",
    "poll": "handle",
    "rank": "",
    "reducescatter": f"tensor, name=None, compression, {SCATTERED}",
    "reducescatter_async": f"tensor, name=None, {SCATTERED}",
    "remove_process_set": "process_set",
    "rocm_built": "",
    "shutdown": "",
    "size": "",
    "sparse_allreduce_async": "tensor, name, op, process_set",
    "synchronize": "handle",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression, backward_passes_per_step=1, op, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set",
    "ProcessSet": "ranks_or_comm",
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
    "elastic.ElasticSampler": "dataset, shuffle=True, seed=0",
    "elastic.TorchState": "model=None, optimizer=None, kwargs",
    "elastic.run": "func",
}
"""An argument listed without a default, after one with a default, defaults to one of `OBJECTS`."""

OBJECTS = {
    "compression": "Compression.none",
    "process_set": "global_process_set",
    "op": "Average",
}
"""Defaults that are objects."""

MODULES = {
    "horovod.common.elastic": "ObjectState State",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt",
    "horovod.common.process_sets": "ProcessSet add_process_set global_process_set remove_process_set",
    "horovod.common.util": "check_extension check_installed_version gpu_available is_version_greater_equal_than",
    "horovod.torch.compression": "Compression Compressor FP16Compressor NoneCompressor",
    "horovod.torch.elastic": "ElasticSampler TorchState run",
    "horovod.torch.elastic.sampler": "ElasticSampler",
    "horovod.torch.elastic.state": "TorchState",
    "horovod.torch.functions": "allgather_object broadcast_object broadcast_object_fn broadcast_optimizer_state "
    "broadcast_parameters",
    "horovod.torch.mpi_ops": "Adasum Average Sum allreduce allreduce_async_ init is_homogeneous rank size synchronize",
    "horovod.torch.optimizer": "DistributedOptimizer",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
}
"""Scripts import from these modules, too."""


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the alias first, as on a machine without the real Horovod."""
    before = _take_out()
    monkeypatch.syspath_prepend(str(ALIAS))
    yield
    _take_out()
    sys.modules.update(before)


def _take_out() -> dict[str, Any]:
    """Remove the modules of any Horovod that an earlier test has imported."""
    found = [name for name in sys.modules if name.partition(".")[0] == "horovod"]
    return {name: sys.modules.pop(name) for name in found}


def named(path: str) -> Any:
    value = importlib.import_module("horovod.torch")
    for name in path.split("."):
        value = getattr(value, name)
    return value


def test_a_star_import_has_all_public_names() -> None:
    names: dict[str, Any] = {}
    exec("from horovod.torch import *", names)
    assert {"allreduce", "check_extension", "init"} <= set(names)


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters(name: str) -> None:
    """Additional parameters may follow, with defaults."""
    wanted = [parameter.partition("=")[::2] for parameter in SIGNATURES[name].split(", ") if parameter]
    parameters = list(inspect.signature(named(name)).parameters.values())
    variadic = inspect.Parameter.VAR_KEYWORD
    given = [each.name for each in parameters]
    expected = [parameter for parameter, _ in wanted]
    if expected[-1:] == ["kwargs"]:
        assert parameters[len(expected) - 1].kind is variadic
        given, expected = given[: len(expected) - 1], expected[:-1]
    assert given[: len(expected)] == expected
    assert all(
        each.default is not inspect.Parameter.empty or each.kind is variadic
        for each in parameters[len(expected) :]
    )
    for each, (_, default) in zip(parameters, wanted, strict=False):
        if default:
            assert str(each.default) == default, each.name
        elif each.name in OBJECTS and name not in ("add_process_set", "remove_process_set"):
            assert each.default is named(OBJECTS[each.name]), each.name


@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str) -> None:
    imported = importlib.import_module(module)
    missing = [name for name in MODULES[module].split() if not hasattr(imported, name)]
    assert missing == []


def test_constants() -> None:
    operations = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [int(named(name)) for name in operations] == list(range(6))
    assert named("Compression.fp16").__name__ == "FP16Compressor"
    assert (named("global_process_set.process_set_id"), named("global_process_set.ranks")) == (None, None)


def test_errors_are_what_scripts_catch() -> None:
    assert issubclass(named("HorovodInternalError"), RuntimeError)
    exceptions = importlib.import_module("horovod.common.exceptions")
    assert exceptions.HorovodInternalError is named("HorovodInternalError")
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync is True


def test_version() -> None:
    assert importlib.import_module("horovod").__version__.startswith("0.28.1")
