"""Allreduce between the ranks of one machine, through shared memory.

Gloo sends data between the ranks of a machine over sockets, which makes the kernel copy it several times. Here each
rank copies its chunk of a tensor into its slot, the ranks synchronize, and each rank reduces the slots. The memory has
no name, so that a killed rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import socket
import struct
import threading
import time
from contextlib import ExitStack
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain._system import memory as system
from cloudtrain._system.sockets import input_waiter
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.options import spin_seconds
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch._ops import IN_PLACE
from cloudtrain.distributed.torch._thread_work import ThreadWork, WorkQueue

SLOT_BYTES = 2 << 20
"""The largest slot. Larger tensors are reduced in chunks."""
MAX_BYTES = 32 << 20
"""The limit for the slots of all ranks together; with many ranks, slots are smaller."""
CARRIER = "SHARED_MEMORY"
"""The name of this carrier in the timeline."""
SLOTS_PER_RANK = 2
"""While one slot is filled, other ranks may still read the other."""
_NUMBER = struct.Struct("!I")
SIGNAL_BYTES = 64
"""The distance between numbers that different ranks write, so that they are in different cache lines."""
SHOWS_STORES_IN_ORDER = platform.machine().lower() in ("x86_64", "amd64")
"""Whether a processor that observes a store by another one also observes all earlier stores by that one."""
LOOKS = 20
"""How often a waiting rank reads a count before it lets other threads run: for about a microsecond."""
MOST_VIEWS = 256
"""The most kinds and lengths of tensors for which views of the slots are kept."""
_TYPES = frozenset(
    getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
)
_Opened = tuple[mmap.mmap, dict[int, socket.socket]]
"""The memory, and the connections by their numbers."""


def open_shared_memory(store: Any, rank: int, size: int, timeout: float) -> SharedMemory | None:
    """Open the memory together on all ranks; None on all of them if one rank cannot.

    Args:
        store: a store of ``torch.distributed``, shared by all ranks, and not used before.
        timeout: seconds that ranks wait for one another, now and in every operation.
    """
    with ExitStack() as opened:
        found = (_create if rank == 0 else _attach)(store, rank, size, timeout, opened)
        return SharedMemory(*found, rank, size) if found else None


class SharedMemory:
    """The slots of all ranks, and the connections that synchronize them: between rank 0 and every other rank."""

    def __init__(self, memory: mmap.mmap, peers: dict[int, socket.socket], rank: int, size: int) -> None:
        slots = SLOTS_PER_RANK * size * slot_bytes(size)
        self._slots = torch.frombuffer(memory, dtype=torch.uint8, count=slots).view(SLOTS_PER_RANK, size, -1)
        signals = memoryview(memory)[slots:].cast("Q")
        spin = spin_seconds(size)
        self._peers = [_Peer(peer, signals, number, rank == 0, spin) for number, peer in peers.items()]
        self._rank = rank
        self._size = size
        self._slot = 0
        self._open = True
        self._views: dict[tuple[torch.dtype, int], list[list[Tensor]]] = {}
        self._queue = WorkQueue(CARRIER)

    def supports(self, tensor: Tensor) -> bool:
        """Whether `all_reduce` can reduce it."""
        return tensor.device.type == "cpu" and tensor.dtype in _TYPES and tensor.is_contiguous()

    def all_reduce(self, tensor: Tensor, op: ReduceOp, *, async_op: bool) -> ThreadWork | None:
        """Like ``torch.distributed.all_reduce``: in place, in the same order on all ranks."""

        def run() -> None:
            try:
                if not tensor.is_inference():
                    self._all_reduce(tensor.detach().view(-1), IN_PLACE[op])
                    return
                with torch.inference_mode():  # the mode is per thread
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
        """Close the connections: operations in flight fail, here and on the other ranks."""
        self._disconnect()
        self._queue.close()

    def _disconnect(self) -> None:
        self._open = False
        for peer in self._peers:
            with contextlib.suppress(OSError):
                # Unlike close, this wakes a thread that waits for the peer.
                peer.connection.shutdown(socket.SHUT_RDWR)

    def _all_reduce(self, flat: Tensor, reduce: Callable[[Tensor, Tensor], Any]) -> None:
        length = flat.numel()
        step = self._slots.shape[-1] // flat.element_size()
        for begin in range(0, length, step):
            part = flat if length <= step else flat[begin : begin + step]
            slots = self._slots_of(part)
            slots[self._rank].copy_(part)
            self._barrier()
            if (
                self._size == 2
            ):  # the order does not matter for two, so each rank adds the other's slot to its tensor
                reduce(part, slots[1 - self._rank])
            else:
                self._reduce_shares(slots, part, reduce)

    def _slots_of(self, part: Tensor) -> list[Tensor]:
        """The slots of all ranks to exchange ``part``, as tensors of its type and length."""
        key = part.dtype, part.numel()
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            length = part.numel() * part.element_size()
            with torch.inference_mode(False):  # for tensors of both modes
                views = [list(slots[:, :length].view(part.dtype)) for slots in self._slots]
            self._views[key] = views
        self._slot ^= 1
        return views[self._slot]

    def _reduce_shares(
        self, slots: list[Tensor], part: Tensor, reduce: Callable[[Tensor, Tensor], Any]
    ) -> None:
        """Every rank reduces one share of the elements for all ranks, in the order of ranks."""
        shares = list(zip(*(slot.tensor_split(self._size) for slot in slots)))
        total, *others = shares[self._rank]
        for other in others:
            reduce(total, other)
        self._barrier()
        for target, (total, *_) in zip(part.tensor_split(self._size), shares):
            target.copy_(total)

    def _barrier(self) -> None:
        if not self._open:
            raise ConnectionError("the connections are closed")
        if self._rank == 0:
            for peer in self._peers:
                peer.wait()
        for peer in self._peers:
            peer.signal()
        if self._rank != 0:
            self._peers[0].wait()


class _Peer:
    """Signals between this rank and another one: a count in the shared memory, and a byte for a rank that sleeps.

    Args:
        connection: to the other rank; it ends when that rank ends.
        memory: where each of the two writes how many signals it has sent, and whether it sleeps.
        number: the number of the connection.
        first: whether this is rank 0.
        spin: seconds for which `wait` polls the count before it sleeps.
    """

    def __init__(
        self, connection: socket.socket, memory: memoryview, number: int, first: bool, spin: float
    ) -> None:
        self.connection = connection
        self._memory = memory
        one, two = (line * SIGNAL_BYTES // memory.itemsize for line in (2 * number, 2 * number + 1))
        self._own, self._other = (one, two) if first else (two, one)
        self._spin = spin
        self._sent = self._received = 0
        self._fence = threading.Lock()
        self._wait_for_input = input_waiter(connection)

    def signal(self) -> None:
        self._sent += 1
        self._memory[self._own] = self._sent
        with self._fence:  # makes the store above visible before the load below; `wait` does the reverse
            pass
        if self._memory[self._other + 1] or not SHOWS_STORES_IN_ORDER:
            with contextlib.suppress(BlockingIOError):  # full of bytes that the other rank has not needed
                os.write(self.connection.fileno(), b".")

    def wait(self) -> None:
        """Wait for the next signal: at first without sleeping. Raises OSError."""
        self._received += 1
        if not SHOWS_STORES_IN_ORDER:
            self._sleep()
            return
        memory, other, expected = self._memory, self._other, self._received
        awake = time.monotonic() + self._spin
        while memory[other] < expected:
            # Polling the connection lets other threads of this process run.
            if self._wait_for_input(0.0) or time.monotonic() > awake:
                self._sleep_until(expected)
                return
            for _ in range(LOOKS):
                if memory[other] >= expected:
                    return

    def _sleep_until(self, expected: int) -> None:
        self._memory[self._own + 1] = 1
        with self._fence:
            pass
        while self._memory[self._other] < expected:  # the byte may be that of an earlier signal
            self._sleep()
        self._memory[self._own + 1] = 0

    def _sleep(self) -> None:
        if not self.connection.recv(1):
            raise ConnectionError("connection closed by peer")


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
    peers: dict[int, socket.socket] = {}
    while len(peers) < size - 1:
        peer, _ = listener.accept()
        if not system.is_own_process(peer):
            peer.close()
            continue
        peer.settimeout(timeout)
        system.send_descriptor(peer, descriptor)
        peer.sendall(_NUMBER.pack(len(peers)))
        peers[len(peers)] = peer
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
        (number,) = _NUMBER.unpack(peer.recv(_NUMBER.size, socket.MSG_WAITALL))
        return mmap.mmap(descriptor, _length(size)), {number: peer}
    except (OSError, ValueError, struct.error) as error:
        raise CollectiveError(
            f"rank {rank} could not share memory with rank 0: {error}",
            hint="Check whether rank 0 ended, and whether memory is limited (ulimit -v).",
        ) from error


def _length(size: int) -> int:
    return SLOTS_PER_RANK * size * slot_bytes(size) + 2 * size * SIGNAL_BYTES
