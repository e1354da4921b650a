"""Tests on GPUs: whether this machine has one, and what lets several ranks share it.

Tests marked ``gpu`` run where there is an NVIDIA GPU, and are deselected elsewhere. ``pytest -m gpu`` runs no others.
"""

from __future__ import annotations

from cloudtrain.contract import gpu_count

DEVICE = "CLOUDTRAIN_TEST_DEVICE"
"""Programs of the tests create their tensors on this device: ``cuda``, or the CPU if it is not set."""

WHY = "they need an NVIDIA GPU: pytest -m gpu on a machine that has one"


def variables(rank: int, count: int) -> dict[str, str]:
    """The variables with which rank ``rank`` of ``count`` on this machine runs a program of the tests on a GPU.

    NCCL refuses two ranks of one host on the same GPU. If there are too few GPUs, each rank counts as another host:
    NCCL then uses sockets. That is slow, but has NCCL's streams, lazy waits and aborts.
    """
    own = {DEVICE: "cuda"}
    if gpu_count() < count:
        own.update(
            NCCL_HOSTID=f"rank{rank}",
            NCCL_SOCKET_IFNAME="lo",
            NCCL_IB_DISABLE="1",
            NCCL_MNNVL_ENABLE="0",
        )
    return own
