"""Sharded checkpoints: every rank saves its shards, and rank 0 commits them with one manifest.

A save needs no barrier in the training; the saving threads communicate among themselves. Rank 0 announces the save,
each rank writes its objects and reports them to rank 0, and rank 0 writes the manifest and reports the result. A
failure on one rank fails the save on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.manifest import StoredObject
from cloudtrain.checkpoint.sharded.group import RankGroup
from cloudtrain.checkpoint.sharded.shards import RankShards, merged
from cloudtrain.checkpoint.store.store import CheckpointStore, PendingSave, PreparedSave
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, CloudtrainError, Unreachable

Prepare = Callable[[], "tuple[PreparedSave, RankShards]"]
"""Prepares this rank's part of a save. It may raise, which fails the save on all ranks."""

Answer = TypeVar("Answer")


class _Written(NamedTuple):
    """The result of one rank's save: its prepared save, the objects of its tensors, and its shards."""

    prepared: PreparedSave
    objects: tuple[StoredObject, ...]
    shards: RankShards


class ShardedSaver:
    """Saves to ``store`` and restores from it together with the other ranks of ``group``."""

    def __init__(self, store: CheckpointStore, group: RankGroup) -> None:
        self.group = group
        self._store = store
        self._last: tuple[str, Sequence[StoredObject]] | None = None
        """On ranks other than 0: the last committed save, and this rank's objects of it."""

    def ask_rank_0(self, ask: Callable[[], Answer]) -> Answer:
        """The result of ``ask`` on rank 0, as JSON. If it raises there, all ranks raise."""
        answer, failure = _attempt(ask) if self.group.rank == 0 else (None, None)
        message = self.group.all_gather(_failure(failure) if failure else {"answer": answer})[0]
        if failure is not None:
            raise failure
        _raise_failure(message)
        result: Answer = message["answer"]
        return result

    def load(self, step: int, into: Any, pool: WorkerPool) -> Any:
        """Like `CheckpointStore.load`.

        Raises Damaged on every rank if any rank finds damage, so that all fall back to the same checkpoint.
        """
        state, failure = _attempt(lambda: self._store.load(step, into, pool))
        messages = self.group.all_gather(_failure(failure) if failure else {})
        if failure is not None and not isinstance(failure, Damaged):
            raise failure
        for rank, message in enumerate(messages):
            if not message.get("damaged"):
                _raise_failure(message, f"rank {rank}: ")
        damage = next((message for message in messages if "failure" in message), None)
        if damage is not None:
            self._store.mark_damaged(step)
            raise Damaged(damage["failure"]) from failure
        return state

    def commit(self, step: int, prepare: Prepare, pool: WorkerPool) -> None:
        """Like `CheckpointStore.commit`, on all ranks at the same time.

        Raises:
            CheckpointError: a rank failed or is gone.
        Unreachable: a rank found that the storage does not answer.
        """
        if self.group.rank == 0:
            self._commit_on_rank_0(step, prepare, pool)
        else:
            self._commit_on_other_rank(step, prepare, pool)

    def _commit_on_rank_0(self, step: int, prepare: Prepare, pool: WorkerPool) -> None:
        store = self._store
        try:
            pending = store.begin(step)
            base = store.base.save if store.base else None
            self.group.send_to_all({"step": step, "save": pending and pending.save, "base": base})
            if pending is None:
                return
            with store.discard_on_error(pending):
                prepared, objects, shards = self._write_and_gather(pending, prepare, pool)
                document = merged(prepared.document, shards)
                manifest = store.write_tree(pending, document, objects, prepared.metadata)
            store.commit_manifest(manifest, pending)
            self.group.send_to_all({})
        except BaseException as error:
            self.group.send_to_all(_failure(error))
            raise
        finally:
            self.group.flush()
        store.delete_expired(pending)

    def _write_and_gather(
        self, pending: PendingSave, prepare: Prepare, pool: WorkerPool
    ) -> tuple[PreparedSave, tuple[StoredObject, ...], list[RankShards]]:
        """Write this rank's objects and collect those of the others.

        Waits for the others even if this rank has failed, as they are still writing.
        """
        written, failure = _attempt(lambda: self._write(pending.step, pending.save, prepare, pool))
        messages = self.group.receive_from_all()
        if failure is not None:
            raise failure
        for rank, message in enumerate(messages, 1):
            _raise_failure(message, f"rank {rank}: ")
        assert written is not None
        others = (StoredObject.from_json(record) for message in messages for record in message["objects"])
        shards = [written.shards, *(RankShards.from_json(message["shards"]) for message in messages)]
        return written.prepared, (*written.objects, *others), shards

    def _commit_on_other_rank(self, step: int, prepare: Prepare, pool: WorkerPool) -> None:
        request = self.group.receive()
        _raise_failure(request)
        save, base = request["save"], request["base"]

        def write() -> _Written:
            if request["step"] != step:  # one checkpoint would mix two steps
                raise CheckpointError(
                    f"rank {self.group.rank} saves step {step}, and rank 0 step {request['step']}",
                    hint="Every rank must call save, maybe_save and restore at the same steps.",
                )
            return self._write(step, save, prepare, pool, base)

        if save is None:
            return
        written, failure = _attempt(write)
        if written is None:
            self.group.send_to_rank_0(_failure(failure))
        else:
            records = [stored.to_json() for stored in written.objects]
            self.group.send_to_rank_0({"objects": records, "shards": written.shards.to_json()})
        result = self.group.receive()
        if failure is not None:
            raise failure
        _raise_failure(result)
        assert written is not None
        self._last = save, written.objects

    def _write(
        self, step: int, save: str, prepare: Prepare, pool: WorkerPool, base: str | None = None
    ) -> _Written:
        prepared, shards = prepare()
        rank = self.group.rank
        reusable = self._store.reusable if rank == 0 else self._reusable(base)
        objects = self._store.write_files(step, save, prepared.files, reusable, pool, rank)
        return _Written(prepared, objects, shards)

    def _reusable(self, base: str | None) -> Sequence[StoredObject]:
        """The objects that need not be written again: only those of the save that rank 0 knows to be intact."""
        if self._last is not None and self._last[0] == base:
            return self._last[1]
        own = self._store.base
        return own.tensors if own is not None and own.save == base else ()


def _attempt(function: Callable[[], Answer]) -> tuple[Answer | None, Exception | None]:
    """The function's result, or the exception that it raised."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def _failure(error: BaseException | None) -> dict[str, Any]:
    """An error as a message to other ranks."""
    message, hint = (error.message, error.hint) if isinstance(error, CloudtrainError) else (repr(error), "")
    kinds = {"damaged": isinstance(error, Damaged), "away": isinstance(error, Unreachable)}
    return {"failure": message, "hint": hint, **kinds}


def _raise_failure(message: Mapping[str, Any], prefix: str = "") -> None:
    if "failure" in message:
        kind = Unreachable if message["away"] else CheckpointError
        raise kind(prefix + message["failure"], hint=message["hint"])
