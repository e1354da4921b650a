"""The backend for the GPUs of all ranks."""

from __future__ import annotations

import pytest

from cloudtrain.distributed.torch._devices import GLOO, NCCL, RankDevice, choose_backend


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
