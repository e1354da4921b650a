"""Public names, messages and heartbeats. The tests of the alias compare signatures with Horovod's."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cloudtrain.distributed.torch as hvd
from cloudtrain import distributed
from cloudtrain.errors import CloudtrainError
from cloudtrain.observe import heartbeat


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    hvd.init()
    yield
    hvd.shutdown()


def test_public_names() -> None:
    for module in (hvd, distributed):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
        public = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and (name == "elastic" or not inspect.ismodule(value))
        }
        assert public == set(module.__all__)


def test_a_result_can_be_taken_after_shutdown(started: None) -> None:
    handle = hvd.allreduce_async(torch.full((2,), 3.0))
    hvd.shutdown()
    assert hvd.synchronize(handle).tolist() == [3.0, 3.0]


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
        lambda: hvd.alltoall(torch.ones(1)),
        lambda: hvd.reducescatter(torch.ones(1)),
        lambda: hvd.grouped_allreduce([torch.ones(1)]),
        lambda: hvd.sparse_allreduce_async(torch.ones(1).to_sparse()),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.allgather_object(1),
        lambda: hvd.add_process_set([0]),
        hvd.join,
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1)], lr=0.1)),
    ],
)
def test_before_init(call: object) -> None:
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"has not been initialized; use hvd\.init\(\)") as raised:
        call()  # type: ignore[operator]
    assert isinstance(raised.value, CloudtrainError)


@pytest.mark.usefixtures("started")
def test_collectives_and_steps_write_the_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "heartbeat"
    monkeypatch.setenv("CLOUDTRAIN_HEARTBEAT_FILE", str(file))
    parameter = torch.ones(1, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1))
    for call in (
        optimizer.step,
        lambda: hvd.allreduce(parameter),
        lambda: hvd.allgather(parameter),
        lambda: hvd.broadcast(parameter, 0),
        lambda: hvd.alltoall(parameter),
        lambda: hvd.reducescatter(parameter),
        lambda: hvd.allgather_object(1),
    ):
        monkeypatch.setattr("cloudtrain.observe.heartbeat._last", 0.0)
        heartbeat.create(str(file))
        call()
        last = heartbeat.read(str(file))
        assert last, call
        assert not last.waits
