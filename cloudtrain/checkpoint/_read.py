"""A state from its objects: verified while they stream, straight into the tensors' own memory."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from typing import Any, BinaryIO

from cloudtrain.checkpoint import _tree
from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec, framework_named, framework_of
from cloudtrain.checkpoint._into import targets_in
from cloudtrain.checkpoint._manifest import Manifest, StoredObject
from cloudtrain.errors import NotFound
from cloudtrain.observe import beat
from cloudtrain.storage.base import Store

CHUNK = 1 << 20
"""Bytes that are read and hashed at a time, while they are in the processor's cache."""


def read(store: Store, manifest: Manifest, into: Any, crew: Crew) -> Any:
    """The state that the manifest names, every byte of it verified; tensors of ``into`` are filled in place.

    Raises:
        Damaged: an object is missing, or is not what was saved. ``into`` may hold some of it.
        CheckpointError: a tensor of ``into`` does not fit. Nothing was changed.
    """
    document = json.loads(_read_object(store, manifest.tree))
    specs = _tree.decode_specs(document)
    _check_pieces(manifest, specs)
    filling = {
        name: _Filling(spec, tensors)
        for (name, spec), tensors in zip(specs.items(), targets_in(document, specs, into))
    }
    crew.map(lambda entry: _fill(store, entry, filling), manifest.tensors)
    return _tree.decode(document, {name: tensor.value for name, tensor in filling.items()})


class _Filling:
    """One tensor, while its bytes arrive."""

    def __init__(self, spec: TensorSpec, targets: list[Any]) -> None:
        self._spec = spec
        self._framework = framework_named(spec.framework)
        self._targets = targets
        self._missing = spec.nbytes
        self._lock = threading.Lock()
        self._memory: memoryview | None = None
        self.value = targets[0] if targets else self._framework.empty(spec)

    def memory(self, begin: int, end: int) -> memoryview:
        """Where these bytes go: into the tensor itself, or beside it if it has another layout or device."""
        with self._lock:
            if self._memory is None:
                self._memory = _memory(self.value)
            if self._memory is None:
                self._memory = memoryview(bytearray(self._spec.nbytes))
            return self._memory[begin:end]

    def filled(self, nbytes: int) -> None:
        with self._lock:
            self._missing -= nbytes
            if self._missing:
                return
            memory, self._memory = self._memory, None
        assert memory is not None
        beside = [target for target in self._targets if target is not self.value or _memory(target) is None]
        for target in beside:
            framework = framework_of(target)
            assert framework is not None
            framework.copy([framework.within(self._spec, memory)], [target])()


def _memory(value: Any) -> memoryview | None:
    framework = framework_of(value)
    assert framework is not None
    return framework.memory(value)


def _fill(store: Store, entry: StoredObject, filling: dict[str, _Filling]) -> None:
    digest = hashlib.sha256()
    with _open(store, entry) as stream:
        header = bytearray(entry.size - sum(end - begin for _, begin, end in entry.pieces))
        _read_into(stream, memoryview(header), entry, digest)
        for name, begin, end in entry.pieces:
            _read_into(stream, filling[name].memory(begin, end), entry, digest)
        longer = len(stream.read(1))
    entry.verify_digest(entry.size + longer, digest.hexdigest())
    for name, begin, end in entry.pieces:
        filling[name].filled(end - begin)
    beat()


def _read_into(stream: BinaryIO, target: memoryview, entry: StoredObject, digest: Any) -> None:
    position = 0
    while position < target.nbytes:
        count = stream.readinto(target[position : position + CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise Damaged(f"{entry.key} ends before its {entry.size} bytes")
        digest.update(target[position : position + count])
        position += count


def _read_object(store: Store, entry: StoredObject) -> bytes:
    with _open(store, entry) as stream:
        data = stream.read()
    entry.verify(data)
    return data


def _open(store: Store, entry: StoredObject) -> BinaryIO:
    try:
        return store.open(entry.key)
    except NotFound as error:
        raise Damaged(f"{entry.key} is missing") from error


def _check_pieces(manifest: Manifest, specs: dict[str, TensorSpec]) -> None:
    """Raises Damaged unless the pieces of each tensor are all of it."""
    covered: Counter[str] = Counter()
    for entry in manifest.tensors:
        for name, begin, end in entry.pieces:
            spec = specs.get(name)
            if spec is None or not 0 <= begin <= end <= spec.nbytes:
                raise Damaged(f"tensor {name!r} is not the one that its tree names")
            covered[name] += end - begin
    for name, spec in specs.items():
        if covered[name] != spec.nbytes:
            raise Damaged(f"tensor {name!r} is not stored whole")
