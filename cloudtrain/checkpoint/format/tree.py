"""A state as a JSON document, with its tensors stored separately.

JSON values represent themselves: strings, numbers, booleans, null, lists, and dicts whose keys are all strings.
Anything else is an object with a single key that begins with ``$``:

    {"$tensor": NAME}        {"$tuple": [...]}          {"$dict": [[KEY, VALUE], ...]}
    {"$bytes": BASE64}       {"$float": "nan"}          {"$complex": [REAL, IMAGINARY]}

The document is ``{"tree": ..., "tensors": {NAME: {framework, dtype, itemsize, shape}}}``. A sharded tensor also lists
its chunks, each with the name under which it is stored:

    "layer/weight": {"framework": ..., "dtype": ..., "itemsize": ..., "shape": [1024, 64],
                     "shards": [[[[0, 0], [512, 64]], "layer/weight[0:512,0:64]"], ...]}

Nothing in the document is executable.
"""

from __future__ import annotations

import base64
import math
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cloudtrain.checkpoint.errors import Damaged, Unsupported
from cloudtrain.checkpoint.tensors.chunks import Chunk, coverage_problem
from cloudtrain.checkpoint.tensors.framework import (
    Framework,
    Leaf,
    LocalShards,
    TensorSpec,
    framework_of,
    sharded_tensor,
)
from cloudtrain.contract.documents import LARGEST_NUMBER, Fields, is_count, parse_json
from cloudtrain.errors import CheckpointError

MAX_DEPTH = 100
"""Levels of nesting. A deeper tree is assumed to contain itself."""
RESERVED_NAME = "__metadata__"
"""The one name that a safetensors file does not allow for a tensor."""

Path = tuple[Any, ...]
"""The keys and indices that lead to a value."""


class StoredChunk(NamedTuple):
    """A chunk of a tensor, and the name under which it is stored."""

    chunk: Chunk
    name: str


def encode(state: Any, root: str = "state") -> tuple[dict[str, Any], dict[str, Leaf]]:
    """The document of ``state``, and its tensors by name. Error messages call the state ``root``.

    A tensor that appears in several places is stored once.

    Raises:
        CheckpointError: a value that cannot be saved; the message names its place.
    """
    document, leaves, sharded = encode_sharded(state, root)
    if sharded:
        raise CheckpointError(
            f"{next(iter(sharded))} of the {root} cannot be saved here: each rank holds a part of it",
            hint="Checkpointer(sharded=True) saves the parts of all ranks.",
        )
    return document, leaves


def encode_sharded(
    state: Any, root: str = "state"
) -> tuple[dict[str, Any], dict[str, Leaf], dict[str, LocalShards]]:
    """Like `encode`; also returns the sharded tensors by name, which the document does not describe yet.

    Names depend only on the keys of the state, so that all ranks agree on them. Memory shared between sharded
    tensors is ignored, as it may be shared on some ranks only.
    """
    encoder = _Encoder(root)
    tree = encoder.encode(state, ())
    # Many tensors share one spec.
    specs = {id(leaf.spec): leaf.spec for leaf in encoder.leaves.values()}
    described = {number: spec._asdict() for number, spec in specs.items()}
    tensors = {name: described[id(leaf.spec)] for name, leaf in encoder.leaves.items()}
    return {"tree": tree, "tensors": tensors}, encoder.leaves, encoder.sharded


def parse(data: bytes) -> dict[str, Any]:
    """The document in ``data``.

    Raises:
        Damaged: this is not a document made by `encode`. Its tree is checked when it is decoded.
    """
    try:
        document = parse_json(data)
    except ValueError as error:
        raise Damaged(f"its tree is not readable: {error}") from error
    if not isinstance(document, dict) or "tree" not in document:
        raise Damaged("its tree is not readable: it has no tree")
    decode(document, _AnyTensor())
    return document


class _AnyTensor(dict[str, None]):
    """Takes the place of the tensors of a document while its form is checked."""

    def __missing__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError("the name of a tensor is not a string")


def decode_specs(document: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The spec of every tensor of the document.

    Raises:
        Damaged: this is not a document made by `encode`.
    """
    try:
        return {name: spec_from_json(record, name) for name, record in document["tensors"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"its tree is not readable: {error!r}") from error


def spec_from_json(record: object, name: str) -> TensorSpec:
    """The spec of the tensor ``name`` of a document. Raises ValueError."""
    given = Fields(record, name)
    shape = given.items("shape")
    if not all(is_count(length) for length in shape):
        raise ValueError(f"{name}.shape is not a list of lengths")
    spec = TensorSpec(
        given.text("framework"), given.text("dtype"), given.integer("itemsize", least=1), tuple(shape)
    )
    if spec.nbytes > LARGEST_NUMBER:
        raise ValueError(f"{name} is larger than any tensor")
    return spec


def decode_chunks(
    document: Mapping[str, Any], specs: Mapping[str, TensorSpec]
) -> dict[str, list[StoredChunk]]:
    """The stored chunks of every tensor of the document; a plain tensor is a single chunk.

    Raises:
        Damaged: the chunks of a tensor do not cover it.
    """
    found = {}
    for name, spec in specs.items():
        records = document["tensors"][name].get("shards")
        if records is None:
            found[name] = [StoredChunk(Chunk.whole(spec.shape), name)]
            continue
        try:
            found[name] = chunks_from_json(records)
            if not all(
                is_count(number) for chunk, _ in found[name] for number in (*chunk.offsets, *chunk.shape)
            ):
                raise ValueError(f"a part of {name} has no place in it")
            problem = coverage_problem([stored.chunk for stored in found[name]], spec.shape)
        except (TypeError, ValueError) as error:
            raise Damaged(f"its tree is not readable: {error!r}") from error
        if problem:
            raise Damaged(f"tensor {name!r} {problem}")
    return found


def chunks_from_json(records: Iterable[Any]) -> list[StoredChunk]:
    chunks = [StoredChunk(Chunk(tuple(offsets), tuple(shape)), name) for (offsets, shape), name in records]
    if not all(isinstance(chunk.name, str) for chunk in chunks):
        raise ValueError("the name of a chunk is not a string")
    return chunks


def decode(document: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """The state, with ``tensors`` in their places.

    Raises:
        Damaged: this is not a document made by `encode`, or a tensor is missing.
    """
    try:
        return _decode(document["tree"], tensors)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Damaged(f"its tree is not readable: {error!r}") from error


def children(node: Any) -> dict[Any, Any]:
    """The direct children of a node of the document's tree, by key or index."""
    if isinstance(node, list):
        return dict(enumerate(node))
    if not isinstance(node, dict):
        return {}
    if len(node) == 1 and "$tuple" in node:
        return dict(enumerate(node["$tuple"]))
    if len(node) == 1 and "$dict" in node:
        return {_decode(key, {}): value for key, value in node["$dict"]}
    return node


_AS_IS = frozenset({type(None), bool, int, str})
_KEYS = _AS_IS | {float}
_DICTS = frozenset({dict, OrderedDict, defaultdict})


class _Encoder:
    def __init__(self, root: str) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.sharded: dict[str, LocalShards] = {}
        self._root = root
        self._names: dict[object, str] = {}

    def encode(self, value: Any, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise self._error(path[:3], f"nested deeper than {MAX_DEPTH} levels, or contains itself")
        kind = type(value)
        if kind in _AS_IS:
            return value
        framework = framework_of(value)
        if framework is not None:
            return {"$tensor": self._tensor(value, framework, path)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is list:
            return self._items(value, path)
        if kind is tuple:
            return {"$tuple": self._items(value, path)}
        if kind in _DICTS:
            return self._dict(value, path)
        if kind is complex:
            return {"$complex": self._items((value.real, value.imag), path)}
        if kind is bytes:
            return {"$bytes": base64.b64encode(value).decode()}
        number = _number(value)
        if type(number) is kind:
            return {"$tensor": self._sharded(value, path, f"a {kind.__module__}.{kind.__qualname__}")}
        return self.encode(number, path)

    def _items(self, values: list[Any] | tuple[Any, ...], path: Path) -> list[Any]:
        return [self.encode(value, (*path, index)) for index, value in enumerate(values)]

    def _dict(self, values: dict[Any, Any], path: Path) -> dict[str, Any]:
        for key in values:
            if type(key) not in _KEYS:
                raise self._error((*path, key), f"under a key of type {type(key).__qualname__}")
        encoded = {key: self.encode(value, (*path, key)) for key, value in values.items()}
        if all(type(key) is str and not key.startswith("$") for key in values):
            return encoded
        return {"$dict": [[self.encode(key, path), value] for key, value in encoded.items()]}

    def _tensor(self, value: Any, framework: Framework, path: Path) -> str:
        try:
            spec = framework.spec(value)
        except Unsupported as error:
            return self._sharded(value, path, str(error))
        address = framework.address(value)
        name = self._free_name("/".join(map(str, path)) or self._root)
        identity = framework.identity(value) if address is None else address or None
        if identity is not None:
            known = self._names.setdefault(identity, name)
            if known is not name and self.leaves[known].spec != spec:  # different tensors at the same address
                known = self._names.setdefault((identity, spec), name)
            if known is not name:
                return known
        self.leaves[name] = Leaf(spec, framework, value, address)
        return name

    def _sharded(self, value: Any, path: Path, what: str) -> str:
        """Raises CheckpointError, which calls the value ``what``, unless it is a sharded tensor."""
        try:
            tensor = sharded_tensor(value)
        except Unsupported as error:
            raise self._error(path, str(error)) from error
        if tensor is None:
            raise self._error(path, what)
        name = self._free_name("/".join(map(str, path)) or self._root)
        self.sharded[name] = tensor
        return name

    def _free_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.leaves or name in self.sharded or name == RESERVED_NAME:
            count += 1
            name = f"{wanted}#{count}"
        return name

    def _error(self, path: Path, what: str) -> CheckpointError:
        place = self._root + "".join(f"[{key!r}]" for key in path)
        return CheckpointError(
            f"{place} cannot be saved: it is {what}",
            hint="A state consists of dicts, lists and tuples of torch tensors, NumPy arrays, Keras and TensorFlow "
            "variables, MXNet arrays, numbers, strings, bytes, booleans and None.",
        )


def _number(value: Any) -> Any:
    """A NumPy scalar as a Python number; any other value unchanged."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _decode(node: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        ((tag, value),) = node.items()
        if tag == "$tensor":
            return tensors[value]
        if tag == "$tuple":
            return tuple(_decode(list(value), tensors))
        if tag == "$dict":
            return {_decode(key, tensors): _decode(item, tensors) for key, item in value}
        if tag == "$bytes":
            return base64.b64decode(value, validate=True)
        if tag == "$float":
            return float(value)
        if tag == "$complex":
            return complex(*_decode(value, tensors))
        if tag.startswith("$"):
            raise ValueError(f"unknown tag {tag}")
    return {key: _decode(item, tensors) for key, item in node.items()}
