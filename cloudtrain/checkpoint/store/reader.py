"""Reads a state: objects are verified while they stream directly into the memory of its tensors."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Callable, NamedTuple, Protocol, TypeVar

from cloudtrain.checkpoint.errors import Damaged, Unsupported
from cloudtrain.checkpoint.failed_saves import warn
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.manifest import Manifest, StoredObject
from cloudtrain.checkpoint.format.tree import StoredChunk, children
from cloudtrain.checkpoint.tensors.chunks import Chunk
from cloudtrain.checkpoint.tensors.framework import (
    LocalShards,
    TensorSpec,
    framework_named,
    framework_of,
    local_shards,
)
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.observe import beat
from cloudtrain.storage import join_uri
from cloudtrain.storage.base import AlteredBody, DamagedBody
from cloudtrain.storage.retry_policy import ATTEMPTS

Result = TypeVar("Result")

BLOCK = 1 << 20
"""Bytes that are read and then hashed while they are still in the processor's cache."""


class Readable(Protocol):
    """The part of a `Store` that is needed to read a checkpoint."""

    uri: str

    def open(self, key: str) -> BinaryIO: ...


def read_state(store: Readable, manifest: Manifest, into: Any, pool: WorkerPool) -> Any:
    """The verified state of a checkpoint; the tensors of ``into`` are filled in place.

    Reads every object, except those that hold only shards of other ranks.

    Raises:
        Damaged: an object is missing or differs from what was saved. ``into`` may be partly filled.
        CheckpointError: a tensor of ``into`` does not fit. Nothing was changed.
    """
    document = tree.parse(_again(store, manifest.tree, lambda: _read_object(store, manifest.tree)))
    specs = tree.decode_specs(document)
    stored = tree.decode_chunks(document, specs)
    values, readers = _plan(specs, stored, find_targets(document, specs, into))
    _check_pieces(manifest, {name: reader.spec for name, reader in readers.items()})
    needed = [
        stored
        for stored in manifest.tensors
        if any(readers[piece.tensor].is_needed for piece in stored.pieces)
    ]
    pool.map(lambda stored: _again(store, stored, lambda: _read_tensors(store, stored, readers)), needed)
    return tree.decode(document, values)


class TensorReader:
    """Receives the bytes of one stored tensor and distributes them to the tensors that need them."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._missing = spec.nbytes
        self._lock = threading.Lock()
        self._targets: list[_Target] = []
        self._memory: memoryview | None = None
        self._filled_directly: _Target | None = None
        """The target whose own memory receives the bytes."""

    @property
    def is_needed(self) -> bool:
        return bool(self._targets) or not self.spec.nbytes

    def add_target(self, chunk: Chunk, held: Chunk, tensor: Any) -> None:
        """Fill ``tensor``, which holds the elements in ``held``; the stored elements are those in ``chunk``."""
        if chunk.overlap(held):
            self._targets.append(_Target(chunk, held, tensor))

    def memory(self, begin: int, end: int) -> memoryview | None:
        """Where to read these bytes to: a target's own memory or a buffer. None if they are not needed."""
        if not self.is_needed:
            return None
        with self._lock:
            if self._memory is None:
                self._memory = self._target_memory() or memoryview(bytearray(self.spec.nbytes))
            return self._memory[begin:end]

    def received(self, nbytes: int) -> None:
        """Record ``nbytes`` more as read and verified. The last ones complete all targets."""
        with self._lock:
            self._missing -= nbytes
            if self._missing or self._memory is None:
                return
            memory, self._memory = self._memory, None
        for target in self._targets:
            if target is not self._filled_directly:
                target.copy(self.spec, memory)

    def _target_memory(self) -> memoryview | None:
        for target in self._targets:
            memory = target.memory(self.spec)
            if memory is not None:
                self._filled_directly = target
                return memory
        return None


class _Target(NamedTuple):
    chunk: Chunk
    """The stored elements."""
    held: Chunk
    """The elements that the tensor holds."""
    tensor: Any

    def memory(self, spec: TensorSpec) -> memoryview | None:
        """The memory of the stored elements in this tensor, if they are contiguous there."""
        begin = self.chunk.begin_in(self.held)
        framework = framework_of(self.tensor)
        assert framework is not None
        memory = framework.memory(self.tensor) if begin is not None else None
        if memory is None or begin is None:
            return None
        return memory[begin * spec.itemsize :][: spec.nbytes]

    def copy(self, spec: TensorSpec, memory: memoryview) -> None:
        both = self.chunk.overlap(self.held)
        framework = framework_of(self.tensor)
        assert both is not None and framework is not None
        source = framework.within(spec, memory)
        framework.put(source[both.index_in(self.chunk)], self.tensor, both.index_in(self.held))


def _plan(
    specs: Mapping[str, TensorSpec],
    stored: Mapping[str, Sequence[StoredChunk]],
    targets: Mapping[str, Sequence[LocalShards]],
) -> tuple[dict[str, Any], dict[str, TensorReader]]:
    """The tensors of the state by name, and a reader for each stored tensor, by the name in the files.

    Args:
        targets: the existing tensors to fill; if there is none, a new one is made.

    Raises:
        Damaged: two tensors share a stored one but differ in its shape or dtype.
    """
    values: dict[str, Any] = {}
    readers: dict[str, TensorReader] = {}
    for name, spec in specs.items():
        tensors = targets[name] or [_new(spec)]
        values[name] = tensors[0].value
        for chunk, key in stored[name]:
            reader = readers.setdefault(key, TensorReader(spec._replace(shape=chunk.shape)))
            if reader.spec != spec._replace(shape=chunk.shape):
                raise Damaged(f"tensor {key!r} is stored once but described in two ways")
            for held, tensor in _chunks(tensors):
                reader.add_target(chunk, held, tensor)
    return values, readers


def _new(spec: TensorSpec) -> LocalShards:
    made = local_shards(framework_named(spec.framework).empty(spec))
    assert made is not None
    return made


def _chunks(tensors: Iterable[LocalShards]) -> Iterable[tuple[Chunk, Any]]:
    return (chunk for tensor in tensors for chunk in tensor.chunks)


def _again(store: Readable, stored: StoredObject, read: Callable[[], Result]) -> Result:
    if getattr(store, "is_memory", False):  # the same bytes would be read again
        return read()
    return read_again(read, join_uri(store.uri, stored.key))


def _read_tensors(store: Readable, stored: StoredObject, readers: Mapping[str, TensorReader]) -> None:
    digest = hashlib.sha256()
    with _open(store, stored) as stream:
        header = stored.size - sum(end - begin for _, begin, end in stored.pieces)
        _read_into(stream, None, header, stored, digest)
        for name, begin, end in stored.pieces:
            _read_into(stream, readers[name].memory(begin, end), end - begin, stored, digest)
        excess = len(stream.read(1))
    stored.verify_digest(stored.size + excess, digest.hexdigest())
    for name, begin, end in stored.pieces:
        readers[name].received(end - begin)
    beat()


def _read_into(
    stream: BinaryIO, target: memoryview | None, nbytes: int, stored: StoredObject, digest: Any
) -> None:
    """Read and hash ``nbytes`` into ``target``; None discards them."""
    scratch = memoryview(bytearray(min(BLOCK, nbytes) if target is None else 0))
    position = 0
    while position < nbytes:
        end = min(position + BLOCK, nbytes)
        block = scratch[: end - position] if target is None else target[position:end]
        count = stream.readinto(block)  # type: ignore[attr-defined]
        if not count:
            raise Damaged(f"{stored.key} is shorter than its {stored.size} bytes")
        digest.update(block[:count])
        position += count


def _read_object(store: Readable, stored: StoredObject) -> bytes:
    with _open(store, stored) as stream:
        data = stream.read()
    stored.verify(data)
    return data


def _open(store: Readable, stored: StoredObject) -> BinaryIO:
    try:
        return store.open(stored.key)
    except NotFound as error:
        raise Damaged(f"{stored.key} is missing") from error


def _check_pieces(manifest: Manifest, specs: Mapping[str, TensorSpec]) -> None:
    """Raises Damaged unless the pieces of each stored tensor make up all of it."""
    covered: Counter[str] = Counter()
    for stored in manifest.tensors:
        for name, begin, end in stored.pieces:
            spec = specs.get(name)
            if spec is None or not 0 <= begin <= end <= spec.nbytes:
                raise Damaged(f"tensor {name!r} does not match the tree")
            covered[name] += end - begin
    for name, spec in specs.items():
        if covered[name] != spec.nbytes:
            raise Damaged(f"tensor {name!r} is incomplete")


def find_targets(
    document: Mapping[str, Any], specs: Mapping[str, TensorSpec], into: Any
) -> dict[str, list[LocalShards]]:
    """For each tensor of the document, the tensors in the same places of ``into``, plain or sharded.

    There are none where ``into`` lacks the place, such as in an optimizer before its first step.

    Raises:
        CheckpointError: a tensor of ``into`` differs in dtype or shape, has no counterpart in the checkpoint, or
            shares memory with one that is separate in the checkpoint.
    """
    search = _TargetSearch(specs)
    search.match(document["tree"], into, ())
    return search.found


class _TargetSearch:
    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self.found: dict[str, list[LocalShards]] = {name: [] for name in specs}
        self._specs = specs
        self._names: dict[object, str] = {}

    def match(self, node: Any, into: Any, path: tuple[Any, ...]) -> None:
        if isinstance(node, dict) and len(node) == 1 and "$tensor" in node:
            self._add(node["$tensor"], into, path)
            return
        if _local_shards(into, path) is not None:
            raise _mismatch(path, "a tensor in into but not in the checkpoint")
        saved = children(node)
        for key, value in _items(into):
            self.match(saved.get(key), value, (*path, key))

    def _add(self, name: str, into: Any, path: tuple[Any, ...]) -> None:
        target = _local_shards(into, path)
        if target is None:
            return
        saved = self._specs[name]
        if (saved.dtype, saved.shape) != (target.spec.dtype, target.spec.shape):
            raise _mismatch(path, f"{_text(saved)} in the checkpoint, but {_text(target.spec)} in into")
        identity = None if target.is_sharded else target.framework.identity(into)
        if identity is not None and self._names.setdefault(identity, name) != name:
            other = self._names[identity]
            raise _mismatch(
                path, f"the same tensor as {other!r} in into, but a different one in the checkpoint"
            )
        self.found[name].append(target)


def _local_shards(value: Any, path: tuple[Any, ...]) -> LocalShards | None:
    try:
        return local_shards(value)
    except Unsupported as error:
        raise _mismatch(path, str(error)) from error


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"


def _mismatch(path: tuple[Any, ...], what: str) -> CheckpointError:
    place = "state" + "".join(f"[{key!r}]" for key in path)
    return CheckpointError(
        f"the checkpoint does not fit: {place} is {what}",
        hint="Pass the state of the same model as into, or restore without into.",
    )


def read_again(read: Callable[[], Result], uri: str) -> Result:
    """The result of ``read``, which is retried while the object is damaged, but not if it is missing.

    Raises Damaged if every try finds damage.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return read()
        except (Damaged, AlteredBody) as error:
            if isinstance(error.__cause__, NotFound):
                raise
            if attempt == ATTEMPTS:
                raise Damaged(error.message) from error
            warn(f"{uri} is damaged and is read again: {error.message}")
        except DamagedBody as error:  # the store has already retried for long enough
            raise Damaged(error.message) from error
    raise AssertionError
