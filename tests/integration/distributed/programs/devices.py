"""The GPU that init chooses, and the backend for the GPUs of all ranks. PyTorch's list of GPUs is fabricated."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from _cases import raises, run

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.options import logger
from cloudtrain.distributed.torch import _state

RANK = int(os.environ.get("RANK", "0"))
"""Known before init."""


@contextmanager
def gpus(names: list[str], *, slots: list[int] | None = None) -> Iterator[list[int]]:
    """This rank sees GPUs with these UUIDs. Yields the numbers given to set_device."""
    chosen: list[int] = []

    def properties(device: torch.device) -> SimpleNamespace:
        bus = slots[device.index] if slots else int.from_bytes(names[device.index].encode(), "big")
        return SimpleNamespace(uuid=names[device.index], pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)

    hvd.shutdown()
    with mock.patch.multiple(
        torch.cuda,
        is_available=lambda: bool(names),
        device_count=lambda: len(names),
        set_device=chosen.append,
        get_device_properties=properties,
    ):
        yield chosen
        hvd.shutdown()
    hvd.init(start_timeout=240, timeout=120)


@contextmanager
def warnings() -> Iterator[io.StringIO]:
    """The text that this rank logs."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger.addHandler(handler)
    try:
        yield text
    finally:
        logger.removeHandler(handler)


def init(**options: str) -> torch.device:
    hvd.init(start_timeout=240, timeout=120, **options)
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [float(hvd.size())] * 3
    return _state.current().device


def case_one_gpu_for_each_rank() -> None:
    with gpus([f"GPU-{number}" for number in range(4)]) as chosen, warnings() as text:
        assert init() == torch.device("cuda", RANK)
    assert (chosen, text.getvalue()) == ([RANK], "")


def case_each_rank_sees_only_its_own_gpu() -> None:
    with gpus([f"GPU-{RANK}"]) as chosen, warnings() as text:
        assert init() == torch.device("cuda", 0)
    assert (chosen, text.getvalue()) == ([0], "")


def case_more_ranks_than_gpus_work_through_gloo() -> None:
    with gpus(["GPU-a"]) as chosen, warnings() as text:
        assert init() == torch.device("cuda", 0)
        assert hvd.size() == 1 or dist.get_backend() == "gloo"
    assert chosen == [0]
    said = text.getvalue()
    if hvd.rank() or hvd.size() == 1:
        assert said == "", "one rank warns for all"
    else:
        ranks = ", ".join(map(str, range(hvd.size())))
        assert said.startswith(f"ranks {ranks} use the same GPU of "), said
        assert f"(GPU-a): {hvd.size()} ranks, 1 GPU: Gloo" in said
        assert said.count("\n") == 1


def case_parts_of_one_gpu_are_shared_too() -> None:
    """For NCCL, the parts of a divided GPU (MIG) are the same GPU."""
    with gpus([f"MIG-{RANK}"], slots=[7]), warnings() as text:
        init()
    assert ("(0000:07:00)" in text.getvalue()) == (hvd.rank() == 0 and hvd.size() > 1)


def case_a_rank_without_a_gpu() -> None:
    with gpus([] if RANK == 1 else ["GPU-0", "GPU-1", "GPU-2"]), warnings() as text:
        assert init().type == ("cpu" if hvd.rank() == 1 else "cuda")
    assert ("rank 1 on " in text.getvalue()) == (hvd.rank() == 0 and hvd.size() > 1)


def case_nccl_by_name_is_refused() -> None:
    if hvd.size() == 1:
        return
    ranks, size = ", ".join(map(str, range(hvd.size()))), hvd.size()
    with (
        gpus(["GPU-a"]),
        raises(ValueError, "cuda:nccl", f"ranks {ranks} use the same GPU", f"{size} ranks, 1 GPU"),
    ):
        hvd.init(backend="cpu:gloo,cuda:nccl", start_timeout=60)


if __name__ == "__main__":
    run(globals())
