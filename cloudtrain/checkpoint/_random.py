"""The random states of a PyTorch training as numbers and tensors."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from cloudtrain import environment


def capture() -> dict[str, Any]:
    """Those of torch, of its current CUDA device if it is in use, of Python, and of NumPy if it is in use.

    NumPy's is the global one of ``numpy.random``; the state of a ``Generator`` is
    ``generator.bit_generator.state``, which can be saved as it is.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": environment.rank(),
        "torch": torch.get_rng_state(),
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        import numpy as np

        state["numpy"] = np.random.get_state(legacy=True)
    return state


def apply(state: Mapping[str, Any]) -> None:
    """Go on from ``state`` on the rank that captured it; on another from what follows from it and the rank."""
    rank = environment.rank()
    if rank != state["rank"]:
        digest = hashlib.sha256(state["torch"].numpy().tobytes() + str(rank).encode()).digest()
        _seed(int.from_bytes(digest[:4], "little"))
        return
    torch.set_rng_state(state["torch"])
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(seed)
