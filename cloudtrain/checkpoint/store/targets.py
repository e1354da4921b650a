"""Restore targets: the tensors of an existing state that a restore fills in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.format.tree import children
from cloudtrain.checkpoint.tensors.framework import LocalShards, TensorSpec
from cloudtrain.checkpoint.tensors.shards import local_shards
from cloudtrain.errors import CheckpointError


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
