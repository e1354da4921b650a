"""A copy of all tensors of a state, in host memory that is used again for the next one."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from cloudtrain.checkpoint._copying import Move, copy
from cloudtrain.checkpoint._framework import Framework, TensorSpec
from cloudtrain.checkpoint._tree import Leaf

Span = tuple[int, int]
"""Where the bytes of a tensor begin and end in a snapshot's memory."""


@dataclass(frozen=True)
class Snapshot:
    """The tensors of one save, as bytes that lie one after the other in ``memory``.

    The largest elements come first, so that all are aligned without holes between them.
    """

    specs: Mapping[str, TensorSpec]
    """In the order of their bytes."""
    memory: memoryview
    spans: Mapping[str, Span]
    wait: Callable[[], None]
    """Returns when the copies are complete."""


class Buffer:
    """Memory for snapshots, one at a time; it is kept while the tensors keep their names and shapes."""

    def __init__(self) -> None:
        self._specs: dict[str, TensorSpec] | None = None
        self._pinned = False
        self._memory = memoryview(b"")
        self._spans: dict[str, Span] = {}
        self._targets: dict[str, Any] = {}

    def snapshot(self, leaves: Mapping[str, Leaf]) -> Snapshot:
        """Copy the tensors; what stood here before is overwritten."""
        specs = {name: leaf.spec for name, leaf in leaves.items()}
        others = {name: leaf for name, leaf in leaves.items() if leaf.address is None}
        on_device = (leaf.framework for leaf in others.values() if leaf.framework.on_device(leaf.value))
        pinning = next(on_device, None)
        if specs != self._specs or bool(pinning) != self._pinned:
            self._lay_out(specs, pinning)
        waits = self._start(others)
        copy(self._moves(leaves))
        return Snapshot(self._specs or {}, self._memory, self._spans, lambda: _call_all(waits))

    def _lay_out(self, specs: Mapping[str, TensorSpec], pinning: Framework | None) -> None:
        self._specs, self._memory, self._targets = None, memoryview(b""), {}  # the old memory goes first
        ordered = dict(sorted(specs.items(), key=lambda item: -item[1].itemsize))
        ends = list(accumulate(spec.nbytes for spec in ordered.values()))
        size = ends[-1] if ends else 0
        self._spans = dict(zip(ordered, zip([0, *ends], ends)))
        self._memory = pinning.pinned(size) if pinning and size else _host_memory(size)
        self._specs, self._pinned = ordered, bool(pinning)

    def _moves(self, leaves: Mapping[str, Leaf]) -> Iterator[Move]:
        """For the tensors that are plain memory of the host."""
        if not self._memory:
            return
        here = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for name, leaf in leaves.items():
            address = leaf.address
            if address:
                begin, end = self._spans[name]
                yield here + begin, address, end - begin

    def _start(self, leaves: Mapping[str, Leaf]) -> list[Callable[[], None]]:
        """Start the copies of other tensors; the functions wait for them."""
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


def _host_memory(nbytes: int) -> memoryview:
    if not nbytes:
        return memoryview(b"")
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Children made by fork, such as data loaders, must not make each page be copied once more.
    for advice in ("MADV_DONTFORK", "MADV_HUGEPAGE"):
        if hasattr(mmap, advice):
            memory.madvise(getattr(mmap, advice))
    return memoryview(memory)


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()
