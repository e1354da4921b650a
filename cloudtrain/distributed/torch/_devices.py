"""The GPU of each rank, and a backend that can connect these GPUs.

NCCL connects ranks that each have a GPU to themselves. It refuses two ranks of one host on the same GPU, and ranks
without a GPU would wait forever for those with one. All ranks therefore compare their GPUs before they connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain._system.processes import boot_id
from cloudtrain.contract.host import visible_gpus
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.options import logger
from cloudtrain.distributed.world import World

GLOO = "gloo"
NCCL = "cpu:gloo,cuda:nccl"
"""Gloo for CPU tensors, NCCL for GPU tensors."""

_SHOWN = 8
"""The most ranks that a message lists."""


@dataclass(frozen=True)
class RankDevice:
    """The facts about one rank's GPU that the other ranks need. ``gpu`` is empty if the rank has none."""

    machine: str
    """Equal for all ranks that NCCL considers to be on one host."""
    host: str
    """Its name, for messages."""
    gpu: str
    """The UUID."""
    slot: str
    """The address on the PCI bus, which parts of a divided GPU (MIG) have in common. Empty if it is unknown."""
    visible: int
    """The number of GPUs that are visible to the rank."""
    has_nccl: bool


def choose_device(world: World, backend: str | None) -> torch.device:
    """The rank's GPU, which becomes the current one; the CPU without GPUs, or with Gloo.

    A launcher may show each rank only its own GPU, which is then number 0 for every rank. If a host has more ranks than
    GPUs, they share them.
    """
    if backend == GLOO or not torch.cuda.is_available() or not torch.cuda.device_count():
        return torch.device("cpu")
    number = world.local_rank % torch.cuda.device_count()
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def agree_on_backend(store: Any, world: World, device: torch.device, backend: str | None) -> str:
    """The backend for the GPUs of all ranks; the same on all ranks, which all call it.

    Args:
        store: shared by all ranks, and empty.
        device: see `choose_device`.
        backend: the script's choice; None selects NCCL where every rank has its own GPU, else Gloo. Rank 0 logs a
            warning if Gloo connects GPUs.

    Raises:
        InvalidArgument: the ranks were given different backends; or NCCL, although some have no GPU, or share one.
    """
    store.set(f"device/{world.rank}", json.dumps([backend, asdict(_describe(device))]))
    if world.rank == 0:
        given = [json.loads(store.get(f"device/{rank}")) for rank in range(world.size)]
        difference = _difference([wish for wish, _ in given])
        chosen, problem = choose_backend([RankDevice(**about) for _, about in given])
        store.set("backend", json.dumps([chosen, problem, difference]))
    chosen, problem, difference = json.loads(store.get("backend"))
    if difference:
        raise InvalidArgument(
            difference,
            hint="Give all ranks the same backend, or none: they then choose one that connects all of them.",
        )
    if backend is not None:
        if problem and "nccl" in backend:
            raise InvalidArgument(
                f"backend={backend!r}: {problem}",
                hint="Leave backend out: Gloo then connects the GPUs, through the host's memory. For NCCL, start no "
                "more ranks on a host than it has GPUs (processes_per_host).",
            )
        return backend
    if problem and world.rank == 0:
        logger.warning(
            "%s: Gloo connects them through the host's memory, which is slower than NCCL. For NCCL, start as many "
            "ranks on each host as it has GPUs",
            problem,
        )
    return str(chosen)


def _difference(wishes: Sequence[str | None]) -> str:
    """How the backends that the ranks were given differ; empty if they are equal."""
    by_wish: dict[str | None, list[int]] = {}
    for rank, wish in enumerate(wishes):
        by_wish.setdefault(wish, []).append(rank)
    if len(by_wish) == 1:
        return ""
    named = "; ".join(f"{_ranks(ranks)}: {wish or 'none given'}" for wish, ranks in by_wish.items())
    return f"the ranks have different backends: {named}"


def choose_backend(found: Sequence[RankDevice]) -> tuple[str, str]:
    """The backend for these ranks, and why it is not NCCL although there are GPUs."""
    without = [rank for rank, device in enumerate(found) if not device.gpu]
    if len(without) == len(found):
        return GLOO, ""
    if without:
        hosts = ", ".join(sorted({found[rank].host for rank in without}))
        return (
            GLOO,
            f"{_ranks(without)} on {hosts} see{'s' if len(without) == 1 else ''} no GPU, but the others do",
        )
    for kind in ("gpu", "slot"):
        by_gpu: dict[tuple[str, str], list[int]] = {}
        for rank, device in enumerate(found):
            if identity := getattr(device, kind):
                by_gpu.setdefault((device.machine, identity), []).append(rank)
        shared = [(ranks, identity) for (_, identity), ranks in by_gpu.items() if len(ranks) > 1]
        if shared:
            ranks, identity = shared[0]
            host = found[ranks[0]].host
            on_host = [device for device in found if device.machine == found[ranks[0]].machine]
            known = {getattr(device, kind) for device in on_host}
            gpus = max(len(known), *(device.visible for device in on_host))
            return GLOO, (
                f"{_ranks(ranks)} use the same GPU of {host} ({identity}): "
                f"{len(on_host)} ranks, {gpus} GPU{'s' if gpus > 1 else ''}"
            )
    return (NCCL if all(device.has_nccl for device in found) else GLOO), ""


def _ranks(ranks: Iterable[int]) -> str:
    numbers = list(map(str, ranks))
    more = f" and {len(numbers) - _SHOWN} more" if numbers[_SHOWN:] else ""
    return f"rank{'s' if numbers[1:] else ''} {', '.join(numbers[:_SHOWN])}{more}"


def _describe(device: torch.device) -> RankDevice:
    host = socket.gethostname()
    machine = os.environ.get("NCCL_HOSTID") or f"{host} {boot_id()}"
    if device.type != "cuda":
        return RankDevice(machine, host, "", "", 0, dist.is_nccl_available())
    gpu, slot = _identity(device)
    return RankDevice(machine, host, gpu, slot, torch.cuda.device_count(), dist.is_nccl_available())


def _identity(device: torch.device) -> tuple[str, str]:
    """UUID and PCI address of a GPU. Older releases of torch have neither; then the GPU's number."""
    about: Any = None  # the stubs of torch lack the PCI address
    with contextlib.suppress(RuntimeError, AssertionError):
        about = torch.cuda.get_device_properties(device)
    uuid = getattr(about, "uuid", None)
    if uuid is None:
        listed = visible_gpus()
        uuid = listed[device.index] if device.index < len(listed) else device.index
    if about is None or not hasattr(about, "pci_bus_id"):
        return str(uuid), ""
    return str(uuid), f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}"
