"""Sharded checkpoints: every rank saves its shards, and rank 0 commits them with one manifest.

A save needs no barrier in the training; the saving threads communicate among themselves. Rank 0 announces the save,
each rank writes its objects and reports them to rank 0, and rank 0 writes the manifest and reports the result. A
failure on one rank fails the save on all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.manifest import StoredObject
from cloudtrain.checkpoint.format.tree import StoredChunk, chunks_from_json
from cloudtrain.checkpoint.sharded.group import RankGroup
from cloudtrain.checkpoint.store.store import CheckpointStore, PendingSave, PreparedSave, Source, Written
from cloudtrain.checkpoint.tensors.chunks import coverage_problem
from cloudtrain.checkpoint.tensors.framework import Leaf, LocalShards, TensorSpec
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, CloudtrainError, Unreachable


class RankShards(NamedTuple):
    """The sharded tensors of one rank: the spec of each, and the chunks that this rank stores."""

    specs: Mapping[str, TensorSpec]
    chunks: Mapping[str, Sequence[StoredChunk]]

    def to_json(self) -> dict[str, Any]:
        return {"specs": self.specs, "chunks": self.chunks}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RankShards:
        specs = {name: _spec(*fields) for name, fields in record["specs"].items()}
        return cls(specs, {name: chunks_from_json(chunks) for name, chunks in record["chunks"].items()})


NO_SHARDS = RankShards({}, {})


def own_shards(
    tensors: Mapping[str, LocalShards], taken: Collection[str]
) -> tuple[RankShards, dict[str, Leaf]]:
    """The chunks that this rank stores, and their tensors by the names under which they are stored.

    Memory that several tensors share, such as tied weights, is stored once.

    Args:
        tensors: the sharded tensors of a state, by name.
        taken: the names of other tensors.
    """
    leaves: dict[str, Leaf] = {}
    chunks: dict[str, list[StoredChunk]] = {}
    names: dict[object, str] = {}
    for tensor, local in tensors.items():
        for chunk, value in local.chunks if local.owned else ():
            name = f"{tensor}[{chunk}]"
            while name in taken:
                name += "'"
            identity = local.framework.identity(value)
            if identity is not None:
                name = names.setdefault(identity, name)
            if name not in leaves:
                spec, address = local.spec._replace(shape=chunk.shape), local.framework.address(value)
                leaves[name] = Leaf(spec, local.framework, value, address)
            chunks.setdefault(tensor, []).append(StoredChunk(chunk, name))
    return RankShards({name: local.spec for name, local in tensors.items()}, chunks), leaves


def merged(document: Mapping[str, Any], ranks: Sequence[RankShards]) -> dict[str, Any]:
    """The document of rank 0, with the chunks of all ranks.

    Raises:
        CheckpointError: the ranks disagree on the sharded tensors, or their chunks do not cover one.
    """
    first = ranks[0].specs
    for rank, shards in enumerate(ranks):
        for name, spec in shards.specs.items():
            if name not in first:
                raise CheckpointError(
                    f"rank {rank} has the sharded tensor {name!r}, but rank 0 does not",
                    hint="Save the state of the same model, with the same keys, on every rank.",
                )
            if spec != first[name]:
                raise CheckpointError(
                    f"tensor {name!r} is {_text(first[name])} on rank 0, but {_text(spec)} on rank {rank}"
                )
    tensors = dict(document["tensors"])
    for name, spec in first.items():
        stored = [chunk for shards in ranks for chunk in shards.chunks.get(name, ())]
        problem = coverage_problem([chunk for chunk, _ in stored], spec.shape)
        if problem:
            raise CheckpointError(
                f"tensor {name!r} {problem}",
                hint="Every rank passes its own shards; together they must cover the whole tensor.",
            )
        tensors[name] = {**spec._asdict(), "shards": stored}
    return {**document, "tensors": tensors}


def _spec(framework: str, dtype: str, itemsize: int, shape: Iterable[int]) -> TensorSpec:
    return TensorSpec(framework, dtype, itemsize, tuple(shape))


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)} of {spec.framework}"


Prepare = Callable[[], "tuple[PreparedSave, RankShards]"]
"""Prepares this rank's part of a save. It may raise, which fails the save on all ranks."""

Answer = TypeVar("Answer")


class _Part(NamedTuple):
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

    def load(self, source: Source, step: int, into: Any, pool: WorkerPool) -> Any:
        """The verified state of ``step`` in ``source``, like `CheckpointStore.load`.

        Raises Damaged on every rank if any rank finds damage, so that all fall back to the same checkpoint.
        """
        state, failure = _attempt(lambda: source.load(step, into, pool))
        messages = self.group.all_gather(_failure(failure) if failure else {})
        if failure is not None and not isinstance(failure, Damaged):
            raise failure
        for rank, message in enumerate(messages):
            if not message.get("damaged"):
                _raise_failure(message, f"rank {rank}: ")
        damage = next((message for message in messages if "failure" in message), None)
        if damage is not None:
            source.mark_damaged(step)
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
            store.finish(pending, partial(self._write_and_gather, pending, prepare, pool))
            self.group.send_to_all({})
        except BaseException as error:
            self.group.send_to_all(_failure(error))
            raise
        finally:
            self.group.flush()
        store.delete_expired(pending)

    def _write_and_gather(self, pending: PendingSave, prepare: Prepare, pool: WorkerPool) -> Written:
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
        prepared = written.prepared
        return Written(merged(prepared.document, shards), (*written.objects, *others), prepared.metadata)

    def _commit_on_other_rank(self, step: int, prepare: Prepare, pool: WorkerPool) -> None:
        request = self.group.receive()
        _raise_failure(request)
        save, base = request["save"], request["base"]

        def write() -> _Part:
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
    ) -> _Part:
        prepared, shards = prepare()
        rank = self.group.rank
        reusable = self._store.reusable if rank == 0 else self._reusable(base)
        objects = self._store.write_files(step, save, prepared.files, reusable, pool, rank)
        return _Part(prepared, objects, shards)

    def _reusable(self, base: str | None) -> Sequence[StoredObject]:
        """The objects that need not be written again: those of the save ``base``, which rank 0 has found intact."""
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
