"""Names, defaults and messages that scripts written for Horovod rely on."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cloudtrain.distributed.torch as hvd
from cloudtrain import distributed
from cloudtrain.errors import CloudtrainError

SIGNATURES = {
    "allreduce": "tensor, average=None, name=None, compression, op=None, prescale_factor=1.0, postscale_factor=1.0",
    "allreduce_": "tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0",
    "allreduce_async": "tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0",
    "allreduce_async_": "tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0",
    "allgather": "tensor, name=None",
    "allgather_async": "tensor, name=None",
    "broadcast": "tensor, root_rank, name=None",
    "broadcast_": "tensor, root_rank, name=None",
    "broadcast_async": "tensor, root_rank, name=None",
    "broadcast_async_": "tensor, root_rank, name=None",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank",
    "broadcast_object": "obj, root_rank=0, name=None",
    "allgather_object": "obj, name=None",
    "synchronize": "handle",
    "poll": "handle",
    "barrier": "",
    "shutdown": "",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression, backward_passes_per_step=1, op, "
    "gradient_predivide_factor=1.0",
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    shown = []
    for parameter in inspect.signature(getattr(hvd, name)).parameters.values():
        plain = parameter.default is None or type(parameter.default) in (int, float)
        shown.append(f"{parameter.name}={parameter.default}" if plain else parameter.name)
    assert ", ".join(shown) == SIGNATURES[name]


def test_defaults_that_are_objects() -> None:
    assert inspect.signature(hvd.allreduce).parameters["compression"].default is hvd.Compression.none
    arguments = inspect.signature(hvd.DistributedOptimizer).parameters
    assert arguments["compression"].default is hvd.Compression.none
    assert arguments["op"].default is hvd.Average


def test_public_names() -> None:
    for module in (hvd, distributed):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
        public = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and not inspect.ismodule(value)
        }
        assert public == set(module.__all__)


@pytest.mark.parametrize(
    "call",
    [
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.local_size,
        hvd.cross_rank,
        hvd.cross_size,
        hvd.barrier,
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.allgather(torch.ones(1)),
        lambda: hvd.broadcast_(torch.ones(1), 0),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1)], lr=0.1)),
    ],
)
def test_before_init(call: object) -> None:
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"has not been initialized; use hvd\.init\(\)") as raised:
        call()  # type: ignore[operator]
    assert isinstance(raised.value, CloudtrainError)


@pytest.mark.usefixtures("started")
def test_collectives_and_steps_are_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = tmp_path / "heartbeat"
    heartbeat.touch()
    monkeypatch.setenv("CLOUDTRAIN_HEARTBEAT_FILE", str(heartbeat))
    parameter = torch.ones(1, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1))
    for call in (
        optimizer.step,
        hvd.barrier,
        lambda: hvd.allreduce(parameter),
        lambda: hvd.allgather(parameter),
        lambda: hvd.broadcast(parameter, 0),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.allgather_object(1),
    ):
        monkeypatch.setattr("cloudtrain.observe.heartbeat._last", 0.0)
        os.utime(heartbeat, (0, 0))
        call()
        assert heartbeat.stat().st_mtime > 0, call
