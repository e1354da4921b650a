"""Allreduce between ranks of one machine, through memory that all of them see.

Gloo sends what the ranks of a machine tell each other through its sockets, which costs several copies by the
kernel. Here each rank copies its part of a tensor into its slot, the ranks meet, and each sums what lies in the
slots. The memory has no name: a rank that is killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch._ops import IN_PLACE
from cloudtrain.distributed.torch._thread_work import ThreadWork
from cloudtrain.observe.timeline import recorder

SLOT_BYTES = 2 << 20
"""The most bytes that a rank puts there at once; a larger tensor goes in parts."""
TURN_BYTES = 32 << 20
"""The most that the slots of all ranks have, which are smaller where there are many."""
CARRIER = "SHARED_MEMORY"
"""What the timeline calls it."""
TURNS = 2
"""Slots of a rank: one is filled while others may still read the other."""
_TYPES = frozenset(
    getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
)
_Opened = tuple[mmap.mmap, list[socket.socket]]


def open_shared_memory(store: Any, rank: int, size: int, timeout: float) -> SharedMemory | None:
    """What all ranks open together; None on all of them where one of them cannot.

    Args:
        store: of ``torch.distributed``, shared by all ranks, and fresh.
        timeout: seconds that ranks may wait for each other, now and in every operation.
    """
    with ExitStack() as opened:
        found = (_lead if rank == 0 else _follow)(store, rank, size, timeout, opened)
        return SharedMemory(*found, rank, size) if found else None


class SharedMemory:
    """The slots of all ranks, and the connections by which they meet: those of rank 0 lead to all others."""

    def __init__(self, memory: mmap.mmap, peers: list[socket.socket], rank: int, size: int) -> None:
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(TURNS, size, slot_bytes(size))
        self._peers = peers
        self._rank = rank
        self._size = size
        self._turn = 0
        self._queue = _Queue()

    def takes(self, tensor: Tensor) -> bool:
        """Whether `all_reduce` can reduce it."""
        return tensor.device.type == "cpu" and tensor.dtype in _TYPES and tensor.is_contiguous()

    def all_reduce(self, tensor: Tensor, op: ReduceOp, *, async_op: bool) -> ThreadWork | None:
        """As ``torch.distributed``'s: in place, on all ranks in the same order."""

        def run() -> None:
            try:
                with torch.inference_mode():  # which tensors may be of, and the queue's thread is not in
                    self._all_reduce(tensor.detach().view(-1), IN_PLACE[op])
            except OSError as error:
                self._disconnect()  # so that all others know at once
                raise RuntimeError(f"shared memory: {error}") from error
            except BaseException:  # Ctrl-C, say: what follows would meet what the others are at
                self._disconnect()
                raise

        if async_op:
            return self._queue.put(run)
        self._queue.run(run)
        return None

    def close(self) -> None:
        """What is under way fails, here and on the other ranks."""
        self._disconnect()
        self._queue.close()

    def _disconnect(self) -> None:
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # wakes who waits there, as close does not

    def _all_reduce(self, flat: Tensor, reduce: Callable[[Tensor, Tensor], Any]) -> None:
        step = self._slots.shape[-1] // flat.element_size()
        for begin in range(0, flat.numel(), step):
            part = flat[begin : begin + step]
            slots = self._slots[self._turn, :, : part.numel() * flat.element_size()].view(flat.dtype)
            self._turn ^= 1
            slots[self._rank].copy_(part)
            self._meet()
            if self._size == 2:  # either order of two gives the same, so each adds the other's to its own
                reduce(part, slots[1 - self._rank])
            else:
                self._share_work(slots, part, reduce)

    def _share_work(self, slots: Tensor, part: Tensor, reduce: Callable[[Tensor, Tensor], Any]) -> None:
        """Every rank reduces its share of the numbers, in the order of ranks, for all."""
        shares = [share.unbind() for share in slots.tensor_split(self._size, dim=1)]
        total, *others = shares[self._rank]
        for other in others:
            reduce(total, other)
        self._meet()
        for target, (total, *_) in zip(part.tensor_split(self._size), shares):
            target.copy_(total)

    def _meet(self) -> None:
        """Until all ranks are here."""
        if self._rank == 0:
            for peer in self._peers:
                _expect(peer)
        for peer in self._peers:
            peer.sendall(b".")
        if self._rank != 0:
            _expect(self._peers[0])


class _Queue:
    """One thing after the other: in the caller's thread where nothing else is under way, else in one beside it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], Future[None], ThreadWork]] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._open = True

    def put(self, run: Callable[[], None]) -> ThreadWork:
        future: Future[None] = Future()
        turn = ThreadWork(future, CARRIER)
        with self._changed:
            self._waiting.append((run, future, turn))
            if self._thread is None:
                # a daemon: a script that fails must not wait for other ranks before it can end
                self._thread = threading.Thread(target=self._serve, name="cloudtrain-memory", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return turn

    def run(self, run: Callable[[], None]) -> None:
        with self._changed:
            free = not self._busy and not self._waiting
            self._busy = self._busy or free
        if not free:
            self.put(run).wait()
            return
        try:
            run()
        finally:
            self._rest()

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._busy and (self._waiting or not self._open))
                if not self._waiting:
                    self._thread = None
                    return
                (run, future, turn), self._busy = self._waiting.popleft(), True
            turn.began = recorder.now()
            try:
                run()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
            self._rest()

    def _rest(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()


def slot_bytes(size: int) -> int:
    """Of one rank among ``size``; a multiple of any element's size."""
    return min(SLOT_BYTES, TURN_BYTES // size // 64 * 64)


def _lead(store: Any, rank: int, size: int, timeout: float, opened: ExitStack) -> _Opened | None:
    """Rank 0 makes the memory, and gives it to all, if all can connect to it."""
    name = os.urandom(16).hex()
    try:
        memory, descriptor = _make_memory(size)
        opened.callback(os.close, descriptor)
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(_address(name))
        listener.listen(size)
        listener.settimeout(timeout)
    except (OSError, AttributeError):  # no room for it, or no Linux
        name = ""
    store.set("memory", name)
    able = bool(name) and all(store.get(f"memory/{other}") == b"yes" for other in range(1, size))
    store.set("memory/all", "yes" if able else "no")
    if not able:
        return None
    peers: list[socket.socket] = []
    while len(peers) < size - 1:
        peer, _ = listener.accept()
        if _user_of(peer) != os.getuid():  # the address is no secret on this machine
            peer.close()
            continue
        peer.settimeout(timeout)
        socket.send_fds(peer, [b"."], [descriptor])
        peers.append(peer)
    return memory, peers


def _follow(store: Any, rank: int, size: int, timeout: float, opened: ExitStack) -> _Opened | None:
    name = store.get("memory").decode()
    peer = None
    try:
        if name:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(timeout)
            peer.connect(_address(name))
    except (OSError, AttributeError):  # another machine, or another network namespace
        peer = None
    store.set(f"memory/{rank}", "yes" if peer else "no")
    if store.get("memory/all") != b"yes" or peer is None:
        return None
    try:
        _, [descriptor], *_ = socket.recv_fds(peer, 1, 1)
        opened.callback(os.close, descriptor)
        return mmap.mmap(descriptor, _length(size)), [peer]
    except (OSError, ValueError) as error:
        raise CollectiveError(
            f"rank {rank} could not share memory with rank 0: {error}",
            hint="Did rank 0 end, or is this process's memory limited (ulimit -v)?",
        ) from error


def _make_memory(size: int) -> tuple[mmap.mmap, int]:
    descriptor = os.memfd_create("cloudtrain")
    try:
        os.posix_fallocate(descriptor, 0, _length(size))  # now, and not as a SIGBUS later
        return mmap.mmap(descriptor, _length(size)), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _length(size: int) -> int:
    return TURNS * size * slot_bytes(size)


def _user_of(peer: socket.socket) -> int:
    """unix(7), SO_PEERCRED: process, user, group."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _address(name: str) -> str:
    """One that has no file, and ends with its sockets (unix(7), "abstract")."""
    return f"\0cloudtrain-{name}"


def _expect(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError("connection closed by peer")
