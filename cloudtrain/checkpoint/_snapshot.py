"""A copy of all tensors of a state, in host memory that is used again for the next one."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.checkpoint._framework import Framework, TensorSpec
from cloudtrain.checkpoint._tree import Leaf

ALIGNMENT = 64
"""Bytes: of a cache line, and a multiple of any element's size."""


@dataclass(frozen=True)
class Snapshot:
    """The tensors of one save by name, as bytes. ``wait`` returns when the copies are complete."""

    specs: Mapping[str, TensorSpec]
    memory: Mapping[str, memoryview]
    wait: Callable[[], None]


class Buffer:
    """Memory for snapshots, one at a time; it is kept while the tensors keep their names and shapes."""

    def __init__(self) -> None:
        self._specs: dict[str, TensorSpec] | None = None
        self._pinned = False
        self._memory: dict[str, memoryview] = {}
        self._targets: dict[str, Any] = {}

    def snapshot(self, leaves: Mapping[str, Leaf]) -> Snapshot:
        """Copy the tensors; what stood here before is overwritten."""
        specs = {name: leaf.spec for name, leaf in leaves.items()}
        by_framework: dict[Framework, list[str]] = {}
        for name, leaf in leaves.items():
            by_framework.setdefault(leaf.framework, []).append(name)
        pinning = next(
            (leaf.framework for leaf in leaves.values() if leaf.framework.on_device(leaf.value)), None
        )
        if specs != self._specs or bool(pinning) != self._pinned:
            self._lay_out(leaves, specs, pinning)
        waits = [
            framework.copy([leaves[name].value for name in names], [self._targets[name] for name in names])
            for framework, names in by_framework.items()
        ]
        return Snapshot(specs, self._memory, lambda: _call_all(waits))

    def _lay_out(
        self, leaves: Mapping[str, Leaf], specs: dict[str, TensorSpec], pinning: Framework | None
    ) -> None:
        self._specs, self._memory, self._targets = None, {}, {}  # the old memory goes before the new comes
        size = sum(map(_aligned, specs.values()))
        memory = pinning.pinned(size) if pinning and size else _host_memory(size)
        begin = 0
        for name, spec in specs.items():
            self._memory[name] = memory[begin : begin + spec.nbytes]
            self._targets[name] = leaves[name].framework.within(spec, self._memory[name])
            begin += _aligned(spec)
        self._specs, self._pinned = specs, bool(pinning)


def _aligned(spec: TensorSpec) -> int:
    return -(-spec.nbytes // ALIGNMENT) * ALIGNMENT


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
