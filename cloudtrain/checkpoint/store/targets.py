"""Which tensors of a state that is there already take the place of those in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._held import Held, held
from cloudtrain.checkpoint._tree import children
from cloudtrain.errors import CheckpointError


def targets_in(
    document: Mapping[str, Any], specs: Mapping[str, TensorSpec], into: Any
) -> dict[str, list[Held]]:
    """For each tensor of the document the tensors of ``into`` at its places, sharded ones too.

    A tensor of the document has none where ``into`` has nothing at its place, such as an optimizer before its
    first step.

    Raises:
        CheckpointError: a tensor of ``into`` has another dtype or shape, or is none in the checkpoint, or
            shares its memory with one that is apart in the checkpoint.
    """
    places = _Places(specs)
    places.match(document["tree"], into, ())
    return places.found


class _Places:
    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self.found: dict[str, list[Held]] = {name: [] for name in specs}
        self._specs = specs
        self._names: dict[object, str] = {}

    def match(self, node: Any, into: Any, path: tuple[Any, ...]) -> None:
        if isinstance(node, dict) and "$tensor" in node:
            self._tensor(node["$tensor"], into, path)
            return
        if _held(into, path) is not None:
            raise _misfit(path, "a tensor in into, and none in the checkpoint")
        saved = children(node)
        for key, value in _items(into):
            self.match(saved.get(key), value, (*path, key))

    def _tensor(self, name: str, into: Any, path: tuple[Any, ...]) -> None:
        here = _held(into, path)
        if here is None:
            return
        saved = self._specs[name]
        if (saved.dtype, saved.shape) != (here.spec.dtype, here.spec.shape):
            raise _misfit(path, f"{_text(saved)} in the checkpoint, and {_text(here.spec)} in into")
        identity = None if here.is_sharded else here.framework.identity(into)
        if identity is not None and self._names.setdefault(identity, name) != name:
            other = self._names[identity]
            raise _misfit(path, f"the same tensor as {other!r} in into, and another in the checkpoint")
        self.found[name].append(here)


def _held(value: Any, path: tuple[Any, ...]) -> Held | None:
    try:
        return held(value)
    except Unsupported as error:
        raise _misfit(path, str(error)) from error


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"


def _misfit(path: tuple[Any, ...], what: str) -> CheckpointError:
    place = "state" + "".join(f"[{key!r}]" for key in path)
    return CheckpointError(
        f"the checkpoint does not fit: {place} is {what}",
        hint="Give the state of the same model as into, or restore without it.",
    )
