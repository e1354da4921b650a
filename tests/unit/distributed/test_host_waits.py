"""A training step never waits for the GPU: with CUDA tensors that have no values, and eight ranks that do nothing.

Reading a value of such a tensor is an error. Copies between the host and the GPU, which wait too, are counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fake_ranks import fake_ranks
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch.sync_batch_norm import _Normalize
from cloudtrain.optimizers.torch import LAMB, LARS

STEPS = 4


class _Stream:
    """A CUDA stream or event, or an object that makes one current."""

    def __init__(self, *_: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream)

    __hash__ = None  # type: ignore[assignment]

    def record_event(self) -> _Stream:
        return self

    def wait_event(self, _: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("Stream", "device", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, _Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with fake_ranks(torch.device("cuda", 0)):
        yield


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations by name, the copies between devices, and what the reductions do."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies: list[str] = []
        self.names: list[str] = []
        self.reductions: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function.overloadpacket)
        result = function(*args, **kwargs or {})
        given = args[0] if args else None
        source = args[1] if name == "aten.copy_" else given
        if (
            name in ("aten.copy_", "aten._to_copy")
            and getattr(source, "device", result.device).type != result.device.type
        ):
            self.copies.append(name)
        self.names.append(name)
        if name == "c10d.allreduce_":
            self.reductions.append(int(args[2].op()))
        return result


class _Step:
    """Keeps what the forward pass saves for the backward pass. Autograd itself needs a GPU for its threads."""

    saved_tensors: tuple[torch.Tensor, ...]

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *_: torch.Tensor) -> None: ...


@contextlib.contextmanager
def fake_cuda() -> Iterator[_Operations]:
    with FakeTensorMode(allow_non_fake_inputs=True), _Operations() as operations:
        yield operations


def on_gpu(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.empty(shape, device="cuda"))


def step(optimizer: Any, parameters: list[torch.nn.Parameter]) -> None:
    optimizer.zero_grad()
    for parameter in parameters:  # backward() needs a GPU for its threads
        parameter.grad = torch.empty_like(parameter)
        optimizer._reducer.arrived(optimizer._reducer._slots[parameter])
    optimizer.step()


@pytest.mark.parametrize("nccl", [False, True], ids=["another backend", "nccl"])
def test_a_step_of_distributed_optimizer(ranks: None, nccl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket takes one copy, and one collective, which divides if it can."""
    if nccl:
        monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cpu:gloo,cuda:nccl")
    with fake_cuda():
        parameters = [on_gpu(8, 3), on_gpu(8), on_gpu(4, 8), on_gpu(4)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), sparse_as_dense=True)
    with fake_cuda() as operations:
        for _ in range(3):
            operations.names.clear()
            operations.reductions.clear()
            step(optimizer, parameters)
    assert operations.copies == []
    assert operations.names.count("aten._foreach_copy_") == 1
    assert operations.reductions == [(dist.ReduceOp.AVG if nccl else dist.ReduceOp.SUM).value]
    assert ("aten.mul_" in operations.names) != nccl


@pytest.mark.parametrize("momentum", [0.1, None])
def test_sync_batch_norm(ranks: None, momentum: float | None) -> None:
    with fake_cuda() as operations, torch.no_grad():
        layer = hvd.SyncBatchNorm(3, momentum=momentum, device="cuda")
        inputs = torch.empty(2, 3, 4, 4, device="cuda")
        operations.copies.clear()
        for _ in range(STEPS):
            step = _Step()
            output, mean, variance, _ = _Normalize.forward(
                step, inputs, layer.weight, layer.bias, 1e-5, layer
            )
            layer._track(mean, variance)
            _Normalize.backward(step, torch.empty_like(output))
    assert operations.copies == []
    assert operations.names.count("c10d.allreduce_") == 2 * STEPS
    negotiated = 3  # the first step, and how the second one begins
    assert _state.current().client.layer_numbers.count == 2 * STEPS - negotiated


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_optimizers(make: Any) -> None:
    with fake_cuda() as operations:
        parameters = [on_gpu(8, 3), on_gpu(8), on_gpu(4, 8)]
        optimizer = make(parameters, lr=0.1)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer.step()
    assert operations.copies == []


@pytest.mark.parametrize(("rows", "wanted"), [(16, 1), (15, 0)], ids=["even", "uneven"])
def test_reducescatter(ranks: None, rows: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL sends each rank its rows only, if all get as many."""
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cpu:gloo,cuda:nccl")
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    with fake_cuda() as operations:
        own = hvd.reducescatter(torch.empty(rows, 3, device="cuda"), name="rows", op=hvd.Sum)
    assert own.shape == (2, 3)
    assert operations.copies == []
    assert operations.names.count("c10d._reduce_scatter_base_") == wanted
    assert operations.names.count("c10d.allreduce_") == 1 - wanted


def test_allgather(ranks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    with fake_cuda() as operations:
        gathered = hvd.allgather(torch.empty(2, 3, device="cuda"), name="rows")
    assert gathered.shape == (16, 3)
    assert operations.copies == []
    assert "c10d._allgather_base_" in operations.names


def test_a_copy_would_be_counted() -> None:
    with fake_cuda() as operations:
        torch.empty(2, device="cuda").cpu()
        torch.tensor([1.0], device="cuda")
    assert len(operations.copies) == 2
