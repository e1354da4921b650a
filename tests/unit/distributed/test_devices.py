"""The backend for the GPUs of all ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch._devices import GLOO, NCCL, RankDevice, agree_on_backend, choose_backend
from cloudtrain.distributed.world import World


def rank(machine: str, gpu: str, slot: str = "", visible: int = 1, has_nccl: bool = True) -> RankDevice:
    return RankDevice(machine, machine.partition(" ")[0], gpu, slot, visible, has_nccl)


@pytest.mark.parametrize(
    "found",
    [
        [rank("a", "GPU-1"), rank("a", "GPU-2")],
        [rank("a", "GPU-1", "0000:07:00"), rank("b", "GPU-2", "0000:07:00")],
        [rank("rank0", "GPU-1"), rank("rank1", "GPU-1")],  # NCCL_HOSTID makes them two hosts
        [rank("a boot-1", "0"), rank("a boot-2", "0")],
    ],
)
def test_nccl_connects_ranks_with_a_gpu_each(found: list[RankDevice]) -> None:
    assert choose_backend(found) == (NCCL, "")


@pytest.mark.parametrize(
    "found",
    [
        [rank("a", ""), rank("b", "")],
        [rank("a", "GPU-1", has_nccl=False), rank("a", "GPU-2", has_nccl=False)],
    ],
)
def test_gloo_without_gpus_or_without_nccl(found: list[RankDevice]) -> None:
    assert choose_backend(found) == (GLOO, "")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (
            [rank("a", f"GPU-{number % 2}", visible=2) for number in range(4)],
            "ranks 0, 2 use the same GPU of a (GPU-0): 4 ranks, 2 GPUs",
        ),
        (
            [rank("a", "GPU-0"), rank("b", "GPU-1"), rank("b", "GPU-1")],
            "ranks 1, 2 use the same GPU of b (GPU-1): 2 ranks, 1 GPU",
        ),
        (
            [rank("a", "MIG-0", "0000:07:00"), rank("a", "MIG-1", "0000:07:00")],
            "ranks 0, 1 use the same GPU of a (0000:07:00): 2 ranks, 1 GPU",
        ),
        (
            [rank("a", "GPU-0"), *(rank(f"b{number}", "") for number in range(9)), rank("a", "")],
            "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more on a, b0, b1, b2, b3, b4, b5, b6, b7, b8 see no GPU, but the "
            "others do",
        ),
    ],
)
def test_gloo_where_ranks_share_a_gpu_or_have_none(found: list[RankDevice], problem: str) -> None:
    assert choose_backend(found) == (GLOO, problem)


@pytest.mark.parametrize(
    "backends", [(None, "gloo", "gloo"), ("gloo", None, "gloo"), ("nccl", "gloo", "gloo")]
)
def test_ranks_with_different_backends(backends: tuple[str | None, ...]) -> None:
    """As with ``"nccl" if torch.cuda.is_available() else "gloo"`` on different hosts. They once waited for minutes."""
    store, size = dist.HashStore(), len(backends)

    def agree(number: int) -> str:
        with pytest.raises(InvalidArgument) as raised:
            world = World(number, size, number, size, 0, 1)
            agree_on_backend(store, world, torch.device("cpu"), backends[number])
        return raised.value.message

    with ThreadPoolExecutor(size) as threads:
        messages = set(threads.map(agree, range(size)))
    [message] = messages
    assert message.startswith("the ranks have different backends: rank")
    assert "gloo" in message
