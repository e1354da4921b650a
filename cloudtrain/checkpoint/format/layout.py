"""Where the objects of a checkpoint lie below its URI.

    step-000000000010/manifest.json                            written last: makes step 10 exist
    step-000000000010/<save>/tree.json                         what is no tensor
    step-000000000010/<save>/tensors-00000.safetensors, ...    the tensors that changed, in parts;
                             tensors-00003-00000.safetensors   of rank 3, where the ranks save together

``<save>`` is unique to one call of ``save``, so that two writers, or a crash and the run after it, never mix.
The manifest also names objects of earlier steps: tensors that have not changed since.
"""

from __future__ import annotations

import re

MAX_STEP = 10**12 - 1

_STEP = re.compile(r"step-(\d{12})/")
_MANIFEST = re.compile(r"step-(\d{12})/manifest\.json")


def manifest_key(step: int) -> str:
    return f"step-{step:012d}/manifest.json"


def committed_step(key: str) -> int | None:
    """The step whose manifest lies at ``key``; None where that is any other object."""
    match = _MANIFEST.fullmatch(key)
    return int(match[1]) if match else None


def step_of(key: str) -> int | None:
    """The step in whose folder ``key`` lies."""
    match = _STEP.match(key)
    return int(match[1]) if match else None


def save_prefix(step: int, save: str) -> str:
    return f"step-{step:012d}/{save}/"


def tree_key(step: int, save: str) -> str:
    return f"{save_prefix(step, save)}tree.json"


def tensors_key(step: int, save: str, part: int, rank: int | None = None) -> str:
    """Of a save of many ranks, that of one of them."""
    writer = "" if rank is None else f"{rank:05d}-"
    return f"{save_prefix(step, save)}tensors-{writer}{part:05d}.safetensors"


def is_checkpoint_key(key: str) -> bool:
    """Whether ``key``, relative to the checkpoints' folder, belongs to a `Checkpointer`.

    Whoever copies that folder must leave such keys alone: a copy in any order but data first, manifest
    last, can be torn.
    """
    return _STEP.match(key) is not None
