"""A state from its objects: verified while they stream, straight into the tensors' own memory."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

from cloudtrain.checkpoint import _tree
from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._filling import Filling, plan
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._into import targets_in
from cloudtrain.checkpoint._manifest import Manifest, StoredObject
from cloudtrain.checkpoint._shards import stored_shards
from cloudtrain.errors import NotFound
from cloudtrain.observe import beat
from cloudtrain.storage.base import Store

CHUNK = 1 << 20
"""Bytes that are read and hashed at a time, while they are in the processor's cache."""


def read(store: Store, manifest: Manifest, into: Any, crew: Crew) -> Any:
    """The state that the manifest names, verified; tensors of ``into`` are filled in place.

    Every object is read, but those that hold nothing but shards of other ranks.

    Raises:
        Damaged: an object is missing, or is not what was saved. ``into`` may hold some of it.
        CheckpointError: a tensor of ``into`` does not fit. Nothing was changed.
    """
    document = json.loads(_read_object(store, manifest.tree))
    specs = _tree.decode_specs(document)
    stored = stored_shards(document, specs)
    values, fillings = plan(specs, stored, targets_in(document, specs, into))
    _check_pieces(manifest, {name: filling.spec for name, filling in fillings.items()})
    wanted = [
        entry for entry in manifest.tensors if any(fillings[piece.tensor].is_wanted for piece in entry.pieces)
    ]
    crew.map(lambda entry: _fill(store, entry, fillings), wanted)
    return _tree.decode(document, values)


def _fill(store: Store, entry: StoredObject, fillings: Mapping[str, Filling]) -> None:
    digest = hashlib.sha256()
    with _open(store, entry) as stream:
        header = entry.size - sum(end - begin for _, begin, end in entry.pieces)
        _read_into(stream, None, header, entry, digest)
        for name, begin, end in entry.pieces:
            _read_into(stream, fillings[name].memory(begin, end), end - begin, entry, digest)
        longer = len(stream.read(1))
    entry.verify_digest(entry.size + longer, digest.hexdigest())
    for name, begin, end in entry.pieces:
        fillings[name].filled(end - begin)
    beat()


def _read_into(
    stream: BinaryIO, target: memoryview | None, nbytes: int, entry: StoredObject, digest: Any
) -> None:
    """Read ``nbytes`` and hash them; without a target they are not kept."""
    scratch = memoryview(bytearray(min(CHUNK, nbytes) if target is None else 0))
    position = 0
    while position < nbytes:
        end = min(position + CHUNK, nbytes)
        chunk = scratch[: end - position] if target is None else target[position:end]
        count = stream.readinto(chunk)  # type: ignore[attr-defined]
        if not count:
            raise Damaged(f"{entry.key} ends before its {entry.size} bytes")
        digest.update(chunk[:count])
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


def _check_pieces(manifest: Manifest, specs: Mapping[str, TensorSpec]) -> None:
    """Raises Damaged unless the pieces of each stored tensor are all of it."""
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
