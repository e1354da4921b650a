"""The tensors of a restored state, while the bytes of what is stored arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cloudtrain.checkpoint._boxes import Box
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec, framework_named, framework_of
from cloudtrain.checkpoint._held import Held, held
from cloudtrain.checkpoint._shards import Stored


class Filling:
    """One stored tensor, while its bytes arrive: they go to every place where some of them are wanted."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._missing = spec.nbytes
        self._lock = threading.Lock()
        self._places: list[_Place] = []
        self._memory: memoryview | None = None
        self._within: _Place | None = None
        """The place whose own memory the bytes go to."""

    @property
    def is_wanted(self) -> bool:
        return bool(self._places) or not self.spec.nbytes

    def add(self, box: Box, into: Box, tensor: Any) -> None:
        """The stored elements are those in ``box``; ``tensor`` holds those in ``into``."""
        if box.overlap(into):
            self._places.append(_Place(box, into, tensor))

    def memory(self, begin: int, end: int) -> memoryview | None:
        """Where these bytes go: into a tensor itself, or beside all; None where nobody wants them."""
        if not self.is_wanted:
            return None
        with self._lock:
            if self._memory is None:
                self._memory = self._own_memory() or memoryview(bytearray(self.spec.nbytes))
            return self._memory[begin:end]

    def filled(self, nbytes: int) -> None:
        """``nbytes`` more are there, and verified."""
        with self._lock:
            self._missing -= nbytes
            if self._missing or self._memory is None:
                return
            memory, self._memory = self._memory, None
        for place in self._places:
            if place is not self._within:
                place.copy(self.spec, memory)

    def _own_memory(self) -> memoryview | None:
        for place in self._places:
            memory = place.memory(self.spec)
            if memory is not None:
                self._within = place
                return memory
        return None


class _Place(NamedTuple):
    box: Box
    into: Box
    tensor: Any

    def memory(self, spec: TensorSpec) -> memoryview | None:
        """Where the stored tensor lies in this one, if it does in one piece."""
        begin = self.box.begin_in(self.into)
        framework = framework_of(self.tensor)
        assert framework is not None
        memory = framework.memory(self.tensor) if begin is not None else None
        if memory is None or begin is None:
            return None
        return memory[begin * spec.itemsize :][: spec.nbytes]

    def copy(self, spec: TensorSpec, memory: memoryview) -> None:
        both = self.box.overlap(self.into)
        framework = framework_of(self.tensor)
        assert both is not None and framework is not None
        source = framework.within(spec, memory)
        framework.put(source[both.index_in(self.box)], self.tensor, both.index_in(self.into))


def plan(
    specs: Mapping[str, TensorSpec],
    stored: Mapping[str, Sequence[Stored]],
    targets: Mapping[str, Sequence[Held]],
) -> tuple[dict[str, Any], dict[str, Filling]]:
    """The tensors of the state by name, and how what is stored comes into them, by its own name.

    Args:
        targets: the tensors that are there already; where there is none, one is made.

    Raises:
        Damaged: two tensors differ in what they have in common.
    """
    values: dict[str, Any] = {}
    fillings: dict[str, Filling] = {}
    for name, spec in specs.items():
        there = targets[name] or [_new(spec)]
        values[name] = there[0].value
        for box, key in stored[name]:
            filling = fillings.setdefault(key, Filling(spec._replace(shape=box.shape)))
            if filling.spec != spec._replace(shape=box.shape):
                raise Damaged(f"tensor {key!r} is stored once, and named twice as different ones")
            for into, tensor in _parts(there):
                filling.add(box, into, tensor)
    return values, fillings


def _new(spec: TensorSpec) -> Held:
    made = held(framework_named(spec.framework).empty(spec))
    assert made is not None
    return made


def _parts(tensors: Iterable[Held]) -> Iterable[tuple[Box, Any]]:
    return (part for tensor in tensors for part in tensor.parts)
