"""Checkpoints that an earlier cloudtrain wrote, in tests/data/checkpoints: every later one has to read them.

python tests/unit/checkpoint/kept_checkpoints.py NAME    writes one more; those that are there never change
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cloudtrain.checkpoint import Checkpointer, Shard

FOLDER = Path(__file__).parents[2] / "data" / "checkpoints"
STEPS = (1, 2)


def state_at(step: int) -> dict[str, Any]:
    """The state that is saved at ``step``: every kind of value, and tensors of which some never change."""
    tied = torch.full((3, 2), float(step))
    return {
        "step": step,
        "values": [None, True, -0.0, float("inf"), 1 << 70, "é\n", b"\x00\xff", (1, [2]), {3: "three"}],
        "numpy": {
            name: np.arange(4).astype(name) for name in ("float16", "int8", "uint64", "complex64", "bool")
        },
        "empty": np.zeros((0, 3), np.float32),
        "resting": torch.arange(600, dtype=torch.float32),
        "moving": torch.arange(600, dtype=torch.float64) * step,
        "short": torch.linspace(0, step, 5).to(torch.bfloat16),
        "tied": [tied, tied],
    }


def shards_at(step: int) -> dict[str, Any]:
    """A state of one rank that holds all shards of ``array``."""
    return {"array": Shard(array_at(step), (6, 2), (0, 0)), "step": step}


def array_at(step: int) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.arange(12.0).reshape(6, 2) * step
    return array


def write(folder: Path) -> None:
    for kind, state, sharded in (("tree", state_at, False), ("sharded", shards_at, True)):
        with Checkpointer(
            folder / kind, asynchronous=False, sharded=sharded, save_at_end=False
        ) as checkpointer:
            for step in STEPS:
                checkpointer.save(step, state(step))


if __name__ == "__main__":
    write(FOLDER / sys.argv[1])
