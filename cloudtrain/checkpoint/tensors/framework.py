"""The interface between checkpoints and the frameworks that make tensors.

The modules `cloudtrain.checkpoint.tensors.torch` and ``.arrays`` implement `Framework`. Each is imported only once its
framework has been, or when a checkpoint needs it: a job without torch never imports torch.
"""

from __future__ import annotations

import functools
import importlib
import math
import mmap
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.tensors.chunks import Chunk
from cloudtrain.errors import CheckpointError

FRAMEWORKS = ("torch", "numpy")
"""Frameworks whose names appear in checkpoints."""
ARRAY_HOLDERS = ("keras", "tensorflow", "mxnet")
"""Frameworks whose variables are saved as NumPy arrays."""
_CLASSES = {
    "torch": ("torch", "TorchTensors"),
    "numpy": ("arrays", "NumpyArrays"),
    "variables": ("arrays", "Variables"),
}


class TensorSpec(NamedTuple):
    """Everything about a tensor but its bytes."""

    framework: str
    dtype: str
    """The framework's name for it, such as ``bfloat16``."""
    itemsize: int
    """Bytes per element."""
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.shape)


class Leaf(NamedTuple):
    """A plain tensor in a state, to be copied into a snapshot."""

    spec: TensorSpec
    framework: Framework
    value: Any
    address: int | None
    """See `Framework.address`."""


class LocalShards(NamedTuple):
    """The chunks of one tensor that this rank holds. A plain tensor is a single chunk."""

    value: Any
    """The object in the state: a tensor, a DTensor, a ShardedTensor or a `Shard`."""
    spec: TensorSpec
    """The spec of the whole tensor."""
    framework: Framework
    chunks: tuple[tuple[Chunk, Any], ...]
    """Non-empty chunks of the whole tensor, each with the plain tensor that holds it."""
    owned: bool = True
    """False if another rank holds the same chunks and saves them."""

    @property
    def is_sharded(self) -> bool:
        return not (len(self.chunks) == 1 and self.chunks[0][1] is self.value)


class Framework:
    """How the tensors of one framework become bytes, and bytes tensors. The base class is for host memory only."""

    def owns(self, value: Any) -> bool:
        """Whether ``value`` is a tensor of this framework."""
        raise NotImplementedError

    def spec(self, value: Any) -> TensorSpec:
        """Raises Unsupported for a tensor without plain bytes, such as a sparse one."""
        raise NotImplementedError

    def identity(self, value: Any) -> object:
        """Equal for two tensors that are the same elements in the same memory; None for an empty one."""
        raise NotImplementedError

    def address(self, value: Any) -> int | None:
        """The host address of its elements if they are row-major and little-endian, else None.

        0 for an empty tensor.
        """
        return None

    def on_device(self, value: Any) -> bool:
        """Whether it is in accelerator memory, from which copies to `pinned` memory are faster."""
        return False

    def pinned(self, memory: mmap.mmap) -> memoryview:
        """``memory``, page-locked if possible: accelerators then copy to it by DMA."""
        raise NotImplementedError

    def empty(self, spec: TensorSpec) -> Any:
        """A new tensor in host memory. Raises CheckpointError for a dtype that the framework lacks."""
        raise NotImplementedError

    def within(self, spec: TensorSpec, memory: memoryview) -> Any:
        """A tensor that uses ``memory``: its elements in row-major order, little-endian."""
        raise NotImplementedError

    def memory(self, value: Any) -> memoryview | None:
        """The tensor's own memory if its elements are row-major and little-endian, else None."""
        return None

    def copy(self, sources: Sequence[Any], targets: Sequence[Any]) -> Callable[[], None]:
        """Start copying each tensor into one of its dtype and shape. Later work on the sources waits for the copy.

        The returned function blocks until the targets are complete; any thread may call it.
        """
        raise NotImplementedError

    def put(self, source: Any, target: Any, index: tuple[Any, ...]) -> None:
        """Copy a tensor made by `within` into ``target[index]``."""
        raise NotImplementedError

    def sharded(self, value: Any) -> LocalShards | None:
        """The chunks that this rank holds of a sharded tensor; None for any other value.

        Raises Unsupported if some of its elements are not available.
        """
        return None


def framework_of(value: Any) -> Framework | None:
    """The framework whose tensor ``value`` is; None if it is not a tensor."""
    for name in FRAMEWORKS:
        if sys.modules.get(name) is not None:
            framework = _framework(name)
            if framework.owns(value):
                return framework
    if any(name in sys.modules for name in ARRAY_HOLDERS):
        framework = _framework("variables")
        return framework if framework.owns(value) else None
    return None


def framework_named(name: str) -> Framework:
    """Raises CheckpointError if it cannot be imported."""
    if name not in FRAMEWORKS:
        raise CheckpointError(f"the checkpoint holds tensors of the unknown framework {name!r}")
    try:
        return _framework(name)
    except ImportError as error:
        raise CheckpointError(
            f"the checkpoint holds tensors of {name}, which cannot be imported: {error}",
            hint=f"Install {name} to restore it.",
        ) from error


def versions() -> dict[str, str]:
    """The versions of the frameworks that this process has imported."""
    modules = {name: sys.modules.get(name) for name in (*FRAMEWORKS, *ARRAY_HOLDERS)}
    return {name: str(module.__version__) for name, module in modules.items() if module is not None}


@functools.cache  # a state may have tens of thousands of tensors
def _framework(name: str) -> Framework:
    module, kind = _CLASSES[name]
    made: Framework = getattr(importlib.import_module(f"cloudtrain.checkpoint.tensors.{module}"), kind)()
    return made


@dataclass(frozen=True, eq=False)
class Shard:
    """This rank's part of an array that is spread over several ranks, for ``Checkpointer(sharded=True)``.

    Put it in the state at the same place on every rank; it represents the whole array. The parts of all ranks
    must cover the array without overlap; a part may be empty.

    Args:
        array: a NumPy array or a plain torch tensor.
        shape: the shape of the whole array.
        offsets: where this part begins in the whole array, per dimension.

    Raises:
        CheckpointError: the part does not fit into the whole array.
    """

    array: Any
    shape: Sequence[int]
    offsets: Sequence[int]

    def __post_init__(self) -> None:
        part = tuple(self.array.shape)
        fits = len(part) == len(self.shape) == len(self.offsets) and all(
            0 <= begin <= limit - length for begin, length, limit in zip(self.offsets, part, self.shape)
        )
        if not fits:
            raise CheckpointError(
                f"an array of shape {list(part)} at {list(self.offsets)} does not fit into one of shape "
                f"{list(self.shape)}",
                hint="Pass the shape of the whole array and the offsets of this rank's part.",
            )


def local_shards(value: Any) -> LocalShards | None:
    """The local part of a plain or sharded tensor; None if ``value`` is neither.

    Raises:
        Unsupported: the tensor cannot be saved.
    """
    shards = sharded_tensor(value)
    framework = framework_of(value)
    if shards is not None or framework is None:
        return shards
    spec = framework.spec(value)
    return LocalShards(value, spec, framework, ((Chunk.whole(spec.shape), value),))


def sharded_tensor(value: Any) -> LocalShards | None:
    """The local part of a sharded tensor; None if ``value`` is not sharded.

    Raises:
        Unsupported: the tensor cannot be saved.
    """
    if isinstance(value, Shard):
        return _from_shard(value)
    if sys.modules.get("torch") is None:
        return None
    return framework_named("torch").sharded(value)


def _from_shard(shard: Shard) -> LocalShards:
    framework = framework_of(shard.array)
    if framework is None:
        raise Unsupported(f"a Shard of a {type(shard.array).__qualname__}")
    spec = framework.spec(shard.array)
    chunk = Chunk(tuple(map(operator.index, shard.offsets)), spec.shape)
    whole = spec._replace(shape=tuple(map(operator.index, shard.shape)))
    return LocalShards(shard, whole, framework, ((chunk, shard.array),) if chunk.size else ())
