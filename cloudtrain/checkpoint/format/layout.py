"""The keys of a checkpoint's objects, relative to its URI.

    step-000000000010/manifest.json                            written last: commits step 10
    step-000000000010/<save>/tree.json                         everything but the tensors
    step-000000000010/<save>/tensors-00000.safetensors, ...    the tensors that changed, in several files
                             tensors-00003-00000.safetensors   written by rank 3 of a sharded save
    attempts/<run>/000002.json, 000002-steps.json              of a job that was restarted: see `store.attempts`
    elastic/<run>/run-0/000000000017.pt                        commit 17 of the first `elastic.run` of a job

``<save>`` is unique to one call of ``save``, so concurrent writers, or a crashed run and its successor, never mix
their objects. The manifest also refers to objects of earlier steps, for tensors that have not changed since.
"""

from __future__ import annotations

import re

from cloudtrain.environment.commits import commit_of

MAX_STEP = 10**12 - 1

_STEP = re.compile(r"step-(\d{12})/")
_ATTEMPT = re.compile(r"attempts/[0-9a-f]{16}/\d{6,}(-steps)?\.json")
_MANIFEST = re.compile(r"step-(\d{12})/manifest\.json")


def manifest_key(step: int) -> str:
    return f"step-{step:012d}/manifest.json"


def committed_step(key: str) -> int | None:
    """The step whose manifest has this key; None if ``key`` is not a manifest's."""
    match = _MANIFEST.fullmatch(key)
    return int(match[1]) if match else None


def step_of(key: str) -> int | None:
    """The step whose folder contains ``key``; None outside such a folder."""
    match = _STEP.match(key)
    return int(match[1]) if match else None


def save_prefix(step: int, save: str) -> str:
    return f"step-{step:012d}/{save}/"


def tree_key(step: int, save: str) -> str:
    return f"{save_prefix(step, save)}tree.json"


def tensors_key(step: int, save: str, part: int, rank: int | None = None) -> str:
    """``rank`` is the writer in a sharded save."""
    writer = "" if rank is None else f"{rank:05d}-"
    return f"{save_prefix(step, save)}tensors-{writer}{part:05d}.safetensors"


def attempts_prefix(run: str) -> str:
    """``run`` is the hash of the identity of a job."""
    return f"attempts/{run}/"


def attempt_key(run: str, attempt: int) -> str:
    return f"{attempts_prefix(run)}{attempt:06d}.json"


def steps_key(run: str, attempt: int) -> str:
    return f"{attempts_prefix(run)}{attempt:06d}-steps.json"


def is_checkpoint_key(key: str) -> bool:
    """Whether ``key``, relative to the checkpoints' folder, belongs to a `Checkpointer`, or to elastic training.

    Tools that copy the folder must skip such keys: a copy that is not made data first, manifest last, may be
    incomplete.
    """
    return any((_STEP.match(key), _ATTEMPT.fullmatch(key))) or commit_of(key) is not None
