"""Commits the copies in the memory of a host after its ranks have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Callable

from cloudtrain.checkpoint.errors import Damaged, InUse
from cloudtrain.checkpoint.memory.committed import read_committed, write_committed
from cloudtrain.checkpoint.memory.files import remove_header
from cloudtrain.checkpoint.memory.source import WHERE, MemoryCheckpoint, checkpoints_in
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.checkpoint.store.store import CheckpointStore
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, CloudtrainError, StorageError
from cloudtrain.storage import open_store
from cloudtrain.storage.base import Store


def commit_newest(
    folder: Path,
    attempt: Attempt | None,
    where: str = WHERE,
    *,
    is_complete: bool = False,
    open_at: Callable[[str], Store] = open_store,
    elsewhere: Path | None = None,
) -> Iterator[tuple[bool, str]]:
    """For each URI, commit the newest checkpoint in ``folder`` if it is newer than those at the URI.

    Args:
        attempt: the attempt that commits; the copies may be of an earlier one.
        where: the name of the folder in the sentences.
        is_complete: whether the training has done all its steps, and may therefore have deleted its checkpoints.
        open_at: opens a URI as the ranks named it.
        elsewhere: a folder for a checkpoint whose storage cannot be used; None: it stays where it is.

    Yields whether the checkpoint is now at its URI, and a sentence about it; nothing for a URI that has the newest one
    already. Raises StorageError if a checkpoint cannot be put ``elsewhere`` either, or is used by a process that does
    not end.
    """
    damaged: list[tuple[Path, str]] = []
    left: list[str] = []
    whole = checkpoints_in(folder, damaged)
    for path, problem in damaged:
        with contextlib.suppress(OSError):
            remove_header(path)
        yield False, f"a copy in {where} is damaged: {problem}"
    for number, (uri, found) in enumerate(whole.items(), 1):
        known = read_committed(folder, uri)
        if known is not None and known >= max(found):  # it is there, or was deleted since
            continue
        try:
            store = CheckpointStore(open_at(uri), RetentionPolicy(None, None), attempt)
            newest = yield from _commit_undeleted(store, found, where, known, is_complete=is_complete)
            write_committed(folder, uri, newest)
        except Exception as error:  # also one of a storage library: the other URIs are still tried
            problem = f"step {max(found)} is in {where}, and cannot be committed: {_reason(error)}"
            if elsewhere is not None and isinstance(error, InUse):
                left.append(problem)
                continue
            if elsewhere is None or isinstance(error, CheckpointError):  # such as: a later attempt took over
                yield False, problem
                continue
            try:
                yield False, _put(found, elsewhere / str(number), uri, problem)
            except StorageError as worse:  # the other URIs are still tried
                left.append(worse.message)
    if left:
        raise StorageError(". ".join(left))


def _commit_undeleted(
    store: CheckpointStore,
    found: dict[int, MemoryCheckpoint],
    where: str,
    known: int | None,
    *,
    is_complete: bool,
) -> Generator[tuple[bool, str], None, int]:
    """Like `_commit_newest`, for a store in which step ``known`` was committed, and may have been deleted since."""
    last = max(store.steps(), default=-1)
    if known is not None and last < known and not store.is_there(known) and is_complete:
        yield (
            True,
            f"checkpoint {known} was deleted from {store.uri}: step {max(found)} in {where} is not saved there",
        )
        return known
    newest = yield from _commit_newest(store, found, where, last)
    return newest if known is None else max(newest, known)


def _put(found: dict[int, MemoryCheckpoint], folder: Path, uri: str, problem: str) -> str:
    """Commit the newest checkpoint in ``folder`` instead. Returns a sentence about it. Raises StorageError."""
    try:
        store = CheckpointStore(open_store(folder.as_uri()), RetentionPolicy(None, None), None)
        last = max(store.steps(), default=-1)
        is_put = any(is_committed for is_committed, _ in _commit_newest(store, found, "", last))
    except (CloudtrainError, OSError) as error:
        raise StorageError(f"{problem}. It cannot be put into {folder} either: {_reason(error)}") from error
    if not is_put:
        return problem
    return f"{problem}. Step {max(store.steps())} is on disk: copy what is in {folder} to {uri} to resume from it"


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, CloudtrainError) else repr(error)


def _commit_newest(
    store: CheckpointStore, found: dict[int, MemoryCheckpoint], where: str, last: int
) -> Generator[tuple[bool, str], None, int]:
    """Commit the steps newer than ``last``, the newest one in ``store``. Returns the newest one afterwards."""
    newer = sorted((step for step in found if step > last), reverse=True)
    if newer and last >= 0:
        store.resume_from(last)  # tensors that have not changed since are not written again
    in_use: InUse | None = None
    for step in newer:
        try:
            with WorkerPool("cloudtrain-memory") as pool:
                found[step].commit(store, pool)
        except InUse as error:  # by a rank stuck on a dead mount, which not even SIGKILL ends
            in_use = in_use or error
        except Damaged as error:
            found[step].remove()
            yield False, f"the copy of step {step} in {where} is damaged: {error.message}"
        else:
            yield (
                True,
                f"checkpoint {step}, which was in {where}, is committed in {store.uri}",
            )
            last = step
            break
    if in_use:
        raise in_use
    return last
