"""The state of the training that is killed: a pure function of the step, cheap to make and to compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# name: (dtype, shape, for how many steps it stays the same)
LARGE = {
    "weight": ("float32", (512, 1024), 1),
    "momentum": ("float32", (256, 1024), 1),
    "embedding": ("float16", (1024, 512), 4),
    "frozen": ("float32", (256, 1024), 10**9),
}
SMALL = {
    f"layer.{number}": (dtype, (number * 7 % 60, 16), 1 + number % 3)
    for number, dtype in enumerate(("float32", "float64", "int64", "uint8", "complex64") * 8)
}
TENSORS = {**LARGE, **SMALL, "count": ("int64", (), 1)}

NOISE = np.random.default_rng(0).integers(0, 256, 16 << 20, dtype=np.uint8)
STRIDE = 7919 * 8


def expected(name: str, step: int) -> NDArray[Any]:
    """The tensor at ``step``: a piece of the noise, so that pieces of two steps never look like one."""
    dtype, shape, stays = TENSORS[name]
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    number = list(TENSORS).index(name)
    start = (step // stays * 64 + number) * STRIDE % (len(NOISE) - size) // 8 * 8
    return NOISE[start : start + size].view(dtype).reshape(shape)


def loss(step: int) -> float:
    return 1 / (step + 1)


def allocate() -> Arrays:
    """Tensors to train in: like a model's, they keep their memory from step to step."""
    return {name: np.zeros(shape, dtype) for name, (dtype, shape, _) in TENSORS.items()}


def train(tensors: Arrays, step: int) -> None:
    """Make the tensors those of ``step``, in place: a save that still looks at them is torn."""
    for name, tensor in tensors.items():
        tensor.view()[...] = expected(name, step)


def state_of(tensors: Arrays, step: int, framework: str) -> dict[str, Any]:
    """The state to save at ``step``."""
    if framework == "torch":
        import torch

        model: dict[str, Any] = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    else:
        model = dict(tensors)
    return {"model": model, "step": step, "history": [loss(step), None, str(step)], "rates": (0.1, step)}


def is_whole(state: Any, step: int) -> bool:
    """Whether the state is that of ``step``, bit for bit."""
    rest = {name: value for name, value in state.items() if name != "model"}
    wanted = {"step": step, "history": [loss(step), None, str(step)], "rates": (0.1, step)}
    return (
        rest == wanted
        and list(state["model"]) == list(TENSORS)
        and all(
            _bytes(np.asarray(tensor)) == _bytes(expected(name, step))
            for name, tensor in state["model"].items()
        )
    )


def _bytes(tensor: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    return tensor.dtype.name, tensor.shape, tensor.tobytes()
