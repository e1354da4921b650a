"""Runs the cases of a program: all ranks run the same functions in the same order."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

import cloudtrain.distributed.torch as hvd

DEVICE = os.environ.get("CLOUDTRAIN_TEST_DEVICE", "cpu")
"""Tensors are created here unless a case names another device."""


def run(namespace: dict[str, object]) -> None:
    """Run the functions ``case_*`` of a program and print one JSON line for each; exit at the first failure."""
    program = Path(str(namespace["__file__"])).name
    torch.set_num_threads(1)
    if DEVICE != "cpu":
        torch.set_default_device(DEVICE)
    hvd.init(start_timeout=240, timeout=120)
    for name, function in list(namespace.items()):
        if name.startswith("case_") and callable(function):
            error = _error_of(function)
            line = {"program": program, "case": name.removeprefix("case_"), "error": error}
            print(json.dumps(line), flush=True)
            if error:
                raise SystemExit(1)


def _error_of(function: Callable[[], object]) -> str | None:
    torch.manual_seed(0)
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return None


@contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    """Check that the block raises ``kind`` with all ``words`` in the message."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


def same_on_all_ranks(tensor: torch.Tensor) -> bool:
    """Whether all ranks have the same bits in ``tensor``."""
    rows = hvd.allgather(tensor.detach()[None])
    return bool((rows == rows[0]).all())


def seeded(seed: int) -> torch.Generator:
    """Random numbers for `DEVICE`: the same on every call."""
    return torch.Generator(DEVICE).manual_seed(seed)


def array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of ``tensor``, wherever it is."""
    return tensor.detach().cpu().numpy()
