"""A state as verified objects of a store, written and read in parallel parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cloudtrain.checkpoint import _safetensors, _tree
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec, framework_named
from cloudtrain.checkpoint._manifest import Manifest, StoredObject
from cloudtrain.checkpoint.layout import tensors_key, tree_key
from cloudtrain.errors import NotFound
from cloudtrain.observe import beat
from cloudtrain.storage.base import Store

PART_SIZE = 64 * 2**20
"""Bytes of tensors in one object, about; a larger tensor has an object of its own."""

WORKERS = 4
"""Parts in memory at the same time, beside the state itself."""


def write(
    store: Store, step: int, save: str, document: Mapping[str, Any], leaves: Mapping[str, _tree.Leaf]
) -> tuple[StoredObject, list[StoredObject]]:
    """Put the tree and the tensors of one save; returns what the manifest must say of them."""

    def put(key: str, data: bytes) -> StoredObject:
        store.write(key, data)
        return StoredObject.of(key, data)

    def put_part(item: tuple[int, list[str]]) -> StoredObject:
        part, names = item
        tensors = {name: (leaves[name].spec, leaves[name].dump()) for name in names}
        return put(tensors_key(step, save, part), _safetensors.encode(tensors))

    parts = []
    with ThreadPoolExecutor(WORKERS, "cloudtrain-checkpoint") as pool:
        for part in pool.map(put_part, enumerate(_plan(leaves))):
            parts.append(part)
            beat()
    return put(tree_key(step, save), json.dumps(document).encode()), parts


def read(store: Store, manifest: Manifest) -> Any:
    """The state that the manifest names, every byte of it verified.

    Raises:
        Damaged: an object is missing, or is not what was saved.
    """

    def get(entry: StoredObject) -> bytes:
        try:
            data = store.read(entry.key)
        except NotFound as error:
            raise Damaged(f"{entry.key} is missing") from error
        entry.verify(data)
        return data

    document = json.loads(get(manifest.tree))
    specs = _tree.decode_specs(document)
    tensors: dict[str, Any] = {}
    with ThreadPoolExecutor(WORKERS, "cloudtrain-checkpoint") as pool:
        for part in pool.map(lambda entry: _load(get(entry), specs), manifest.tensors):
            tensors.update(part)
            beat()
    return _tree.decode(document, tensors)


def _plan(leaves: Mapping[str, _tree.Leaf]) -> Iterator[list[str]]:
    """The names of the tensors of each part, in the order of the tree."""
    names: list[str] = []
    size = 0
    for name, leaf in leaves.items():
        if names and size + leaf.spec.nbytes > PART_SIZE:
            yield names
            names, size = [], 0
        names.append(name)
        size += leaf.spec.nbytes
    if names:
        yield names


def _load(data: bytes, specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    tensors = {}
    for name, view in _safetensors.decode(data).items():
        spec = specs.get(name)
        if spec is None or spec.nbytes != view.nbytes:
            raise Damaged(f"tensor {name!r} is not the one that its tree names")
        tensors[name] = framework_named(spec.framework).load(spec, view)
    return tensors
