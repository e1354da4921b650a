"""Allreduce between the ranks of one machine, through shared memory.

Gloo sends data between the ranks of a machine over sockets, which makes the kernel copy it several times. Here each
rank copies its chunk of a tensor into its slot, the ranks synchronize, and each rank reduces the slots. The memory has
no name, so that a killed rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from contextlib import ExitStack
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain._system import memory as system
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch._ops import IN_PLACE
from cloudtrain.distributed.torch._thread_work import ThreadWork, WorkQueue

SLOT_BYTES = 2 << 20
"""The largest slot. Larger tensors are reduced in chunks."""
MAX_BYTES = 32 << 20
"""The limit for the slots of all ranks together; with many ranks, slots are smaller."""
CARRIER = "SHARED_MEMORY"
"""The timeline's name for it."""
SLOTS_PER_RANK = 2
"""While one slot is filled, other ranks may still read the other."""
_TYPES = frozenset(
    getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
)
_Opened = tuple[mmap.mmap, list[socket.socket]]


def open_shared_memory(store: Any, rank: int, size: int, timeout: float) -> SharedMemory | None:
    """Open the memory together on all ranks; None on all of them if one rank cannot.

    Args:
        store: of ``torch.distributed``, shared by all ranks, and not used before.
        timeout: seconds that ranks wait for one another, now and in every operation.
    """
    with ExitStack() as opened:
        found = (_create if rank == 0 else _attach)(store, rank, size, timeout, opened)
        return SharedMemory(*found, rank, size) if found else None


class SharedMemory:
    """The slots of all ranks, and the connections that synchronize them: between rank 0 and every other rank."""

    def __init__(self, memory: mmap.mmap, peers: list[socket.socket], rank: int, size: int) -> None:
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(SLOTS_PER_RANK, size, slot_bytes(size))
        self._peers = peers
        self._rank = rank
        self._size = size
        self._slot = 0
        self._queue = WorkQueue(CARRIER)

    def supports(self, tensor: Tensor) -> bool:
        """Whether `all_reduce` can reduce it."""
        return tensor.device.type == "cpu" and tensor.dtype in _TYPES and tensor.is_contiguous()

    def all_reduce(self, tensor: Tensor, op: ReduceOp, *, async_op: bool) -> ThreadWork | None:
        """Like ``torch.distributed.all_reduce``: in place, in the same order on all ranks."""

        def run() -> None:
            try:
                with torch.inference_mode():  # this thread's mode, and the tensor may be an inference tensor
                    self._all_reduce(tensor.detach().view(-1), IN_PLACE[op])
            except OSError as error:
                self._disconnect()  # the other ranks fail immediately
                raise RuntimeError(f"shared memory: {error}") from error
            except (
                BaseException
            ):  # such as Ctrl-C: later operations would no longer match those of the other ranks
                self._disconnect()
                raise

        if async_op:
            return self._queue.put(run)
        self._queue.run(run)
        return None

    def close(self) -> None:
        """Operations in flight fail, here and on the other ranks."""
        self._disconnect()
        self._queue.close()

    def _disconnect(self) -> None:
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # unlike close, this wakes a thread that waits for the peer

    def _all_reduce(self, flat: Tensor, reduce: Callable[[Tensor, Tensor], Any]) -> None:
        step = self._slots.shape[-1] // flat.element_size()
        for begin in range(0, flat.numel(), step):
            part = flat[begin : begin + step]
            slots = self._slots[self._slot, :, : part.numel() * flat.element_size()].view(flat.dtype)
            self._slot ^= 1
            slots[self._rank].copy_(part)
            self._barrier()
            if (
                self._size == 2
            ):  # the order does not matter for two, so each rank adds the other's slot to its tensor
                reduce(part, slots[1 - self._rank])
            else:
                self._reduce_shares(slots, part, reduce)

    def _reduce_shares(self, slots: Tensor, part: Tensor, reduce: Callable[[Tensor, Tensor], Any]) -> None:
        """Every rank reduces one share of the elements for all ranks, in the order of ranks."""
        shares = [share.unbind() for share in slots.tensor_split(self._size, dim=1)]
        total, *others = shares[self._rank]
        for other in others:
            reduce(total, other)
        self._barrier()
        for target, (total, *_) in zip(part.tensor_split(self._size), shares):
            target.copy_(total)

    def _barrier(self) -> None:
        if self._rank == 0:
            for peer in self._peers:
                _receive(peer)
        for peer in self._peers:
            peer.sendall(b".")
        if self._rank != 0:
            _receive(self._peers[0])


def slot_bytes(size: int) -> int:
    """The size of one rank's slot among ``size`` ranks; a multiple of any element's size."""
    return min(SLOT_BYTES, MAX_BYTES // size // 64 * 64)


def _create(store: Any, rank: int, size: int, timeout: float, opened: ExitStack) -> _Opened | None:
    """Rank 0 creates the memory and passes it to the other ranks, if all of them can connect."""
    name = os.urandom(16).hex()
    try:
        memory, descriptor = system.make_shared(_length(size))
        opened.callback(os.close, descriptor)
        listener = opened.enter_context(system.listen(name, size))
        listener.settimeout(timeout)
    except OSError:  # not enough memory, or not Linux
        name = ""
    store.set("memory", name)
    able = bool(name) and all(store.get(f"memory/{other}") == b"yes" for other in range(1, size))
    store.set("memory/all", "yes" if able else "no")
    if not able:
        return None
    peers: list[socket.socket] = []
    while len(peers) < size - 1:
        peer, _ = listener.accept()
        if not system.is_own_process(peer):
            peer.close()
            continue
        peer.settimeout(timeout)
        system.send_descriptor(peer, descriptor)
        peers.append(peer)
    return memory, peers


def _attach(store: Any, rank: int, size: int, timeout: float, opened: ExitStack) -> _Opened | None:
    """The other ranks connect to rank 0 and receive the memory."""
    name = store.get("memory").decode()
    peer = None
    try:
        if name:
            peer = system.connect(name, timeout)
            if not system.is_own_process(peer):  # another user put its name into the store
                peer.close()
                peer = None
    except OSError:  # on another machine, or in another network namespace
        peer = None
    store.set(f"memory/{rank}", "yes" if peer else "no")
    if store.get("memory/all") != b"yes" or peer is None:
        return None
    try:
        descriptor = system.receive_descriptor(peer)
        opened.callback(os.close, descriptor)
        return mmap.mmap(descriptor, _length(size)), [peer]
    except (OSError, ValueError) as error:
        raise CollectiveError(
            f"rank {rank} could not share memory with rank 0: {error}",
            hint="Check whether rank 0 ended, and whether memory is limited (ulimit -v).",
        ) from error


def _length(size: int) -> int:
    return SLOTS_PER_RANK * size * slot_bytes(size)


def _receive(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError("connection closed by peer")
