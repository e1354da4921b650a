"""Snapshots: copies of all tensors of a state in host memory that is reused for the next save."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from cloudtrain._system.memory import private_memory
from cloudtrain.checkpoint.tensors.framework import Framework, Leaf, TensorSpec
from cloudtrain.contract import cpu_count

Span = tuple[int, int]
"""Where the bytes of a tensor begin and end in a snapshot's memory."""

THREADS = 4
"""Maximum: four threads saturate the memory bandwidth."""
BLOCK = 4 << 20
"""Bytes that a thread copies at a time."""
SMALL = 1 << 16
"""Copying this many bytes takes less time than handing the interpreter lock to another thread."""

Move = tuple[int, int, int]
"""The address to copy to, the address to copy from, and the number of bytes."""


@dataclass(frozen=True)
class Snapshot:
    """The tensors of one save as bytes, one after the other in ``memory``.

    Tensors are ordered by element size, largest first, so that all are aligned without padding.
    """

    specs: Mapping[str, TensorSpec]
    """In the order of their bytes."""
    memory: memoryview
    spans: Mapping[str, Span]
    wait: Callable[[], None]
    """Blocks until the copies are complete."""


class Buffer:
    """Memory for one snapshot at a time, reused while the tensors keep their names and shapes."""

    def __init__(self) -> None:
        self._specs: dict[str, TensorSpec] | None = None
        self._pinned = False
        self._memory = memoryview(b"")
        self._spans: dict[str, Span] = {}
        self._targets: dict[str, Any] = {}

    def snapshot(self, leaves: Mapping[str, Leaf]) -> Snapshot:
        """Copy the tensors. Overwrites the previous snapshot."""
        specs = {name: leaf.spec for name, leaf in leaves.items()}
        others = {name: leaf for name, leaf in leaves.items() if leaf.address is None}
        on_device = (leaf.framework for leaf in others.values() if leaf.framework.on_device(leaf.value))
        pinning = next(on_device, None)
        if specs != self._specs or bool(pinning) != self._pinned:
            self._lay_out(specs, pinning)
        waits = self._start(others)
        copy_memory(self._moves(leaves))
        return Snapshot(self._specs or {}, self._memory, self._spans, lambda: _call_all(waits))

    def _lay_out(self, specs: Mapping[str, TensorSpec], pinning: Framework | None) -> None:
        self.free()  # before the new memory is allocated
        ordered = dict(sorted(specs.items(), key=lambda item: -item[1].itemsize))
        self._spans = spans_of(ordered)
        size = sum(spec.nbytes for spec in ordered.values())
        if size:
            memory = self._allocate(size)
            self._memory = pinning.pinned(memory) if pinning else memoryview(memory)
        self._specs, self._pinned = ordered, bool(pinning)

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """The tensors of the last snapshot, in the order of their bytes."""
        return self._specs or {}

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def free(self) -> None:
        """Give the memory back."""
        self._specs, self._memory, self._targets = None, memoryview(b""), {}

    def _allocate(self, nbytes: int) -> mmap.mmap:
        return private_memory(nbytes)

    def _moves(self, leaves: Mapping[str, Leaf]) -> Iterator[Move]:
        """The moves for the tensors that are plain host memory."""
        if not self._memory:
            return
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for name, leaf in leaves.items():
            address = leaf.address
            if address:
                begin, end = self._spans[name]
                yield base + begin, address, end - begin

    def _start(self, leaves: Mapping[str, Leaf]) -> list[Callable[[], None]]:
        """Start copying all other tensors; the functions wait for the copies."""
        by_framework: dict[Framework, list[str]] = {}
        for name, leaf in leaves.items():
            by_framework.setdefault(leaf.framework, []).append(name)
        return [
            framework.copy(
                [leaves[name].value for name in names], [self._target(leaves[name], name) for name in names]
            )
            for framework, names in by_framework.items()
        ]

    def _target(self, leaf: Leaf, name: str) -> Any:
        if name not in self._targets:
            begin, end = self._spans[name]
            self._targets[name] = leaf.framework.within(leaf.spec, self._memory[begin:end])
        return self._targets[name]


# ctypes.memmove releases the interpreter lock, this one does not.
_move_small = ctypes.PyDLL(None).memmove
_move_small.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_move_small.restype = None


def copy_memory(moves: Iterable[Move]) -> None:
    """Copy between addresses of this process with several threads, in any order; targets must not overlap.

    Torch's own copy is not used: its threads synchronize after every tensor, and when other processes use the
    cores one of them is always late. A copy that takes 0.1 s then takes 2 s.
    """
    blocks: list[Move] = []
    for target, source, nbytes in moves:
        if nbytes <= SMALL:
            _move_small(target, source, nbytes)
        else:
            blocks += _blocks(target, source, nbytes)
    queue = iter(blocks)
    threads: list[threading.Thread] = []
    try:
        for _ in range(min(THREADS, cpu_count(), len(blocks)) - 1):
            threads.append(threading.Thread(target=_work, args=(queue,)))
            threads[-1].start()
        _work(queue)
    finally:  # even after Ctrl-C: the caller may free the memory next
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _work(queue: Iterator[Move]) -> None:
    for move in queue:
        ctypes.memmove(*move)


def _blocks(target: int, source: int, nbytes: int) -> Iterator[Move]:
    for begin in range(0, nbytes, BLOCK):
        yield target + begin, source + begin, min(BLOCK, nbytes - begin)


def spans_of(specs: Mapping[str, TensorSpec]) -> dict[str, Span]:
    """Where the bytes of each tensor are, if the tensors follow each other in this order."""
    ends = list(accumulate(spec.nbytes for spec in specs.values()))
    return dict(zip(specs, zip([0, *ends], ends)))


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()
