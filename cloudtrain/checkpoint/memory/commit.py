"""Commits what the ranks of a host, which have ended, left in its memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.memory.files import remove_header
from cloudtrain.checkpoint.memory.source import WHERE, MemoryCheckpoint, checkpoints_in
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.checkpoint.store.store import CheckpointStore
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CloudtrainError
from cloudtrain.storage import open_store


def commit_newest(folder: Path, attempt: Attempt | None, where: str = WHERE) -> Iterator[tuple[bool, str]]:
    """Commit the newest checkpoint of each URI that is newer than those there.

    Args:
        attempt: that commits; the copies may be older.
        where: what the folder is, for the sentences.

    Yields whether it succeeded, and a sentence about it; nothing for a URI that has the newest checkpoint.
    """
    damaged: list[tuple[Path, str]] = []
    whole = checkpoints_in(folder, damaged)
    for path, problem in damaged:
        with contextlib.suppress(OSError):
            remove_header(path)
        yield False, f"a copy in {where} is damaged: {problem}"
    for uri, found in whole.items():
        store = CheckpointStore(open_store(uri), RetentionPolicy(None, None), attempt)
        try:
            yield from _commit_newest(store, found, where)
        except Exception as error:  # of a framework of storage, too: the other URIs are tried
            reason = error.message if isinstance(error, CloudtrainError) else repr(error)
            yield False, f"step {max(found)} is in {where}, and cannot be committed: {reason}"


def _commit_newest(
    store: CheckpointStore, found: dict[int, MemoryCheckpoint], where: str
) -> Iterator[tuple[bool, str]]:
    last = max(store.steps(), default=-1)
    newer = sorted((step for step in found if step > last), reverse=True)
    if newer and last >= 0:
        store.resume_from(last)  # tensors that have not changed since are not written again
    for step in newer:
        try:
            with WorkerPool("cloudtrain-memory") as pool:
                found[step].commit(store, pool)
        except Damaged as error:
            found[step].remove()
            yield False, f"the copy of step {step} in {where} is damaged: {error.message}"
        else:
            yield (
                True,
                f"checkpoint {step}, which was in {where}, is committed in {store.uri}",
            )
            return
