"""broadcast_parameters in buckets: any tensors, few operations, little memory, and errors that name a parameter."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from _cases import DEVICE, raises, run, same_on_all_ranks, seeded
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _state, functions


@contextmanager
def counted() -> Iterator[SimpleNamespace]:
    """Counts the negotiations and the broadcasts of the backend."""
    client, launch = _state.current().client, torch.distributed.broadcast
    found = SimpleNamespace(negotiations=0, sent=[])
    submit = client.submit

    def negotiate(*arguments: Any) -> Any:
        found.negotiations += 1
        return submit(*arguments)

    def broadcast(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        found.sent.append(tensor.data_ptr())
        return launch(tensor, *arguments, **options)

    with (
        mock.patch.object(client, "submit", negotiate),
        mock.patch.object(torch.distributed, "broadcast", broadcast),
    ):
        yield found


def odd_tensors(seed: int) -> dict[str, Tensor]:
    """Tensors of many types and forms, with values that depend on ``seed``."""
    numbers = torch.randn(6, 8, generator=seeded(seed))
    pictures = torch.randn(2, 3, 4, 4, generator=seeded(seed))
    types = [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.int16]
    others = [torch.uint8, torch.bool]
    return {
        "transposed": numbers.t(),
        "with gaps": numbers.repeat(1, 2)[:, ::2],
        "channels last": pictures.to(memory_format=torch.channels_last),
        "strides that differ between ranks": numbers.clone() if seed else numbers.t().contiguous().t(),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(float(seed)),
        "odd bits": torch.tensor([0x7FC00123 + seed, -1 - seed], dtype=torch.int32).view(torch.float32),
        "on the CPU": torch.full((3,), float(seed), device="cpu"),
        "trained": nn.Parameter(numbers.clone()),
        **{str(dtype): numbers.to(dtype) for dtype in types},
        **{str(dtype): (numbers * 10).long().remainder(2).to(dtype) for dtype in others},
    }


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def case_any_tensors() -> None:
    root = hvd.size() - 1
    own, wanted = odd_tensors(hvd.rank()), odd_tensors(root)
    strides = {name: tensor.stride() for name, tensor in own.items()}
    with counted() as found:
        hvd.broadcast_parameters(own, root_rank=root)
    for name, tensor in own.items():
        assert bits(tensor) == bits(wanted[name]), name
        assert tensor.stride() == strides[name], name
    kinds = {(tensor.dtype, tensor.device) for tensor in own.values()}
    assert found.negotiations <= (0 if hvd.size() == 1 else 1 + len(kinds))


@torch.inference_mode()
def inference_tensors() -> list[Tensor]:
    return [torch.full((size,), float(hvd.rank())) for size in (3, 20_000)]


def case_inference_tensors() -> None:
    tensors = inference_tensors()
    hvd.broadcast_parameters(tensors, root_rank=0)
    assert not any(tensor.any() for tensor in tensors)


def case_shared_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    nn.init.constant_(model[0].weight, float(hvd.rank()))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert model[1].weight is model[0].weight
    assert not model[0].weight.any()


def many_layers() -> nn.Module:
    torch.manual_seed(hvd.rank())
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32)) for _ in range(30)])


def case_a_model_costs_few_operations() -> None:
    model = many_layers()
    with counted() as found:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    state = model.state_dict()
    assert len(state) == 210
    assert all(same_on_all_ranks(tensor) for tensor in list(state.values())[::20])
    if hvd.size() > 1:
        assert found.negotiations == 3, "the comparison, a bucket of floats, a bucket of integers"
        assert len(found.sent) == (2 if DEVICE != "cpu" else 1), "a CPU sends the integers with the request"


def case_the_state_of_an_optimizer_costs_few_operations() -> None:
    model = many_layers()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    with counted() as found:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert len(optimizer.state) == 120
    for state in list(optimizer.state.values())[::20]:
        assert same_on_all_ranks(state["exp_avg_sq"])
    assert found.negotiations <= 3
    assert hvd.size() == 1 or found.negotiations >= 2


def case_a_large_tensor_is_not_copied() -> None:
    large = torch.full((functions.limits(torch.empty(0)).large_bytes // 4,), float(hvd.rank()))
    small = [torch.full((20_000,), float(hvd.rank())) for _ in range(2)]
    with counted() as found:
        hvd.broadcast_parameters([small[0], large, small[1]], root_rank=0)
    assert not any(tensor.any() for tensor in (*small, large))
    if hvd.size() > 1:
        assert len(found.sent) == 2
        assert large.data_ptr() in found.sent


def case_two_buckets_exist_at_a_time() -> None:
    length = functions.limits(torch.empty(0)).bucket_bytes // 4 // 5
    tensors = [torch.full((length,), float(hvd.rank() + number)) for number in range(25)]
    flats: list[weakref.ref[Tensor]] = []
    most = []
    start = functions.broadcast_async_

    def watched(tensor: Tensor, *arguments: Any) -> Any:
        flats.append(weakref.ref(tensor))
        most.append(sum(flat() is not None for flat in flats))
        return start(tensor, *arguments)

    with mock.patch.object(functions, "broadcast_async_", watched):
        hvd.broadcast_parameters(tensors, root_rank=0)
    for number, tensor in enumerate(tensors):
        assert bool((tensor == (number + hvd.rank() if hvd.size() == 1 else number)).all())
    assert (len(flats), max(most, default=0)) == ((5, 2) if hvd.size() > 1 else (0, 0))


def case_another_order_on_a_rank() -> None:
    pairs = [(f"t{number}", torch.full((number,), float(hvd.rank()))) for number in range(1, 5)]
    hvd.broadcast_parameters(pairs[:: -1 if hvd.rank() else 1], root_rank=0)
    assert not any(tensor.any() for _, tensor in pairs)


def case_errors_name_the_parameter() -> None:
    if hvd.size() == 1:
        return
    other = bool(hvd.rank())
    shape = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4 + other))
    with raises(hvd.CollectiveError, "broadcast of 1.bias: ", "on shape: rank 0: [4], rank 1: [5]"):
        hvd.broadcast_parameters({"0.weight": shape[0].weight, "1.bias": shape[1].bias}, root_rank=0)
    mixed = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.int32 if other else torch.float32)}
    with raises(hvd.CollectiveError, "broadcast of b: ", "on type: rank 0: float32, rank 1: int32"):
        hvd.broadcast_parameters(mixed, root_rank=0)
    with raises(hvd.CollectiveError, "broadcast of a: ", "on root_rank: rank 0: 0, rank 1: 1"):
        hvd.broadcast_parameters({"a": torch.ones(2)}, root_rank=int(other))
    hvd.broadcast_parameters({"a": torch.ones(2)}, root_rank=0)


def case_a_parameter_that_a_rank_lacks() -> None:
    if hvd.size() == 1:
        return
    tensors = {"a": torch.ones(2), **({} if hvd.rank() else {"extra": torch.ones(3)})}
    lacking = list(range(1, hvd.size()))
    with raises(hvd.CollectiveError, f"broadcast of extra: ranks {lacking} have no tensor of this name"):
        hvd.broadcast_parameters(tensors, root_rank=0)
    with raises(hvd.CollectiveError, f"broadcast of a: ranks {lacking} have no tensor of this name"):
        hvd.broadcast_parameters({} if hvd.rank() else {"a": torch.ones(2)}, root_rank=0)


if __name__ == "__main__":
    run(globals())
