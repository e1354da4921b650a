"""How a framework's tensors become bytes and tensors again.

`cloudtrain.checkpoint._torch`, ``._numpy`` and ``._variables`` are such frameworks, each a module. They are imported
only when their framework already is, or when a checkpoint needs it: a job without torch never asks for it.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from cloudtrain.errors import CheckpointError

FRAMEWORKS = ("torch", "numpy")
"""Those whose names stand in checkpoints."""
HOLDERS = ("keras", "tensorflow", "mxnet")
"""Those whose variables are saved as the arrays that they hold."""


class TensorSpec(NamedTuple):
    """What a tensor is, apart from its bytes."""

    framework: str
    dtype: str
    """The framework's own name, such as ``bfloat16``."""
    itemsize: int
    """Bytes of one element."""
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.shape)


class Framework(Protocol):
    def owns(self, value: Any) -> bool:
        """Whether ``value`` is a tensor of this framework."""
        ...

    def spec(self, value: Any) -> TensorSpec:
        """Raises Unsupported for a tensor that has no plain bytes, such as a sparse one."""
        ...

    def identity(self, value: Any) -> object:
        """Equal for two tensors that are the same elements of the same memory; None for an empty one."""
        ...

    def address(self, value: Any) -> int | None:
        """Where its elements lie in the host's memory, if they do in row-major order, little-endian.

        0 for an empty one.
        """
        ...

    def on_device(self, value: Any) -> bool:
        """Whether it lies in the memory of an accelerator, so that `pinned` memory makes copies of it faster."""
        ...

    def pinned(self, nbytes: int) -> memoryview:
        """Host memory that accelerators copy to by themselves."""
        ...

    def empty(self, spec: TensorSpec) -> Any:
        """A new tensor in the host's memory. Raises CheckpointError for a dtype that the framework lacks."""
        ...

    def within(self, spec: TensorSpec, memory: memoryview) -> Any:
        """A tensor that lies in ``memory``: its elements in row-major order, little-endian."""
        ...

    def memory(self, value: Any) -> memoryview | None:
        """The tensor's own memory, if its elements lie there in row-major order, little-endian."""
        ...

    def copy(self, sources: Sequence[Any], targets: Sequence[Any]) -> Callable[[], None]:
        """Copy each tensor into one of its dtype and shape. Later work on the sources waits for it.

        The targets are complete after the function that this returns, which any thread may call.
        """
        ...

    def put(self, source: Any, target: Any, index: tuple[Any, ...]) -> None:
        """Copy a tensor that `within` gave into the part of ``target`` that ``index`` selects."""
        ...


def framework_of(value: Any) -> Framework | None:
    """The framework whose tensor ``value`` is; None where it is none."""
    for name in FRAMEWORKS:
        if sys.modules.get(name) is not None:
            framework = _module(name)
            if framework.owns(value):
                return framework
    if any(name in sys.modules for name in HOLDERS):
        framework = _module("variables")
        return framework if framework.owns(value) else None
    return None


def framework_named(name: str) -> Framework:
    """Raises CheckpointError where it cannot be imported."""
    if name not in FRAMEWORKS:
        raise CheckpointError(f"the checkpoint holds tensors of the unknown framework {name!r}")
    try:
        return _module(name)
    except ImportError as error:
        raise CheckpointError(
            f"the checkpoint holds tensors of {name}, which cannot be imported: {error}",
            hint=f"Install {name} to restore it.",
        ) from error


def versions() -> dict[str, str]:
    """The versions of the frameworks that this process has imported."""
    modules = {name: sys.modules.get(name) for name in (*FRAMEWORKS, *HOLDERS)}
    return {name: str(module.__version__) for name, module in modules.items() if module is not None}


@functools.cache  # states have tens of thousands of tensors
def _module(name: str) -> Framework:
    return cast(Framework, importlib.import_module(f"cloudtrain.checkpoint._{name}"))
