"""`Checkpointer`: saves the state of a training run and restores the latest one."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from cloudtrain import environment
from cloudtrain.checkpoint.candidates import Candidates, checked_step, warn_of, what_follows
from cloudtrain.checkpoint.copies import Copies, State, Task, fail
from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.failed_saves import FailedSaves, save_patience, warn
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.manifest import run_metadata
from cloudtrain.checkpoint.interval import schedule_of
from cloudtrain.checkpoint.memory.tier import MemoryTier
from cloudtrain.checkpoint.retention import BestArgument, BestMetric, Every, RetentionPolicy, schedule
from cloudtrain.checkpoint.same_step import SameStep
from cloudtrain.checkpoint.sharded.group import RankGroup
from cloudtrain.checkpoint.sharded.saver import ShardedSaver, own_shards
from cloudtrain.checkpoint.store.store import CheckpointStore, Source
from cloudtrain.checkpoint.tensors.snapshot import Buffer
from cloudtrain.checkpoint.workers import BackgroundSaves, WorkerPool
from cloudtrain.contract.trackers import RUN_ID
from cloudtrain.environment import commits
from cloudtrain.environment.job import set_exit_policy
from cloudtrain.errors import CheckpointError, Unreachable
from cloudtrain.observe import beat, own_progress, report_step
from cloudtrain.storage.reachable import answers
from cloudtrain.storage.retry_policy import Patience, using

DEFAULT_FOLDER = "checkpoints"
"""The folder for checkpoints outside a job, below the working directory."""

BUSY = ("wait", "skip", "queue")

REPLACE_SECONDS = 2.0
"""How long a save waits for an earlier one whose storage does not answer, before it replaces it."""
BUSY_SECONDS = 0.5
"""How long `maybe_save` waits for an earlier save, before it checks whether the storage answers."""
ANSWER_SECONDS = 5.0
"""How long an answer may take. An upload that saturates the network delays it, and must not be given up for that."""
POLL_SECONDS = 0.1
SMALL_COPY = 1 << 20
"""Bytes. A smaller copy in memory is hashed by the calling thread, in about a millisecond; starting threads would
take longer."""


@dataclass(frozen=True)
class Checkpoint:
    """The result of `Checkpointer.restore`."""

    step: int
    state: Any
    metrics: Mapping[str, float]
    source: str
    """Where it was: the URI, the URI of the local folder, or "the memory of this host"."""


class Checkpointer:
    """Checkpoints of one training run below one URI.

    A checkpoint is written data first, manifest last, and exists if and only if its manifest does. A process that
    is killed at any instant leaves every committed checkpoint intact.

    Steps only increase: a save at or below a committed step is refused, since it would mix two runs. There are
    two exceptions: saving a step that this object saved or restored does nothing, and a step that it found damaged
    is replaced.

    A save copies the state into its own memory, which is reused for the next save, and writes the copy while the
    training continues. It needs no more memory than that copy and a few megabytes. Python waits for it at exit.
    Not thread-safe.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a path. Defaults to the job's checkpoint URI, and outside
            a job to ``./checkpoints``.
        keep: how many of the newest checkpoints to keep; None keeps all.
        every: when `maybe_save` saves: a number of steps, a time such as ``"10m"`` or a timedelta, or ``"auto"``, which
            depends on how long a save stops the training, and how often the job has failed.
        max_every: the longest time, or the most steps, between two saves of ``"auto"``; 30 minutes if omitted.
        best: the metric whose best checkpoint is kept too and is restored as ``"best"``: ``"loss"`` if smaller is
            better, ``("accuracy", "max")`` if larger is.
        local: a folder on a fast disk, where every checkpoint is committed before it is committed in ``uri``.
        when_busy: what a save does while the previous one is still being written. ``"wait"`` waits for it,
            ``"skip"`` saves nothing, and ``"queue"`` copies the state into a second buffer of the same size and
            queues it, replacing a save that is already queued.
        asynchronous: False makes `save` return only when the checkpoint is durable.
        save_at_end: whether `close`, and leaving a ``with`` block without an exception, saves the last step that
            `maybe_save` was called with, if nothing has saved it. The tensors are read then: close before you change
            them again.
        memory_every: when `maybe_save` saves to the memory of the host only, between the saves of ``every``: a number
            of steps, or a time. See `save`.
        sharded: the state is spread over the ranks, as DTensors are. Every rank saves its shards, and all ranks
            must call `save`, `maybe_save` and `restore` at the same steps, and `close`. Requires the default process
            group of torch.distributed.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        keep: int | None = 3,
        every: Every = None,
        best: BestArgument = None,
        local: str | os.PathLike[str] | None = None,
        when_busy: str = "wait",
        asynchronous: bool = True,
        save_at_end: bool = True,
        sharded: bool = False,
        memory_every: Every = None,
        max_every: Every = None,
    ) -> None:
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise CheckpointError(
                f"keep={keep!r} is not a number of checkpoints", hint="Give at least 1, or None for all."
            )
        if when_busy not in BUSY:
            raise CheckpointError(f"when_busy={when_busy!r} is unknown", hint=f"Known: {', '.join(BUSY)}.")
        if sharded and (local is not None or when_busy != "wait"):
            raise CheckpointError(
                f"sharded=True cannot be combined with {'local' if local else f'when_busy={when_busy!r}'}",
                hint="All ranks save to one shared uri, at the same steps.",
            )
        self._best = BestMetric.of(best)
        self._schedule = schedule_of(every, max_every)
        self._memory_schedule = schedule(memory_every, "memory_every")
        if sharded and self._memory_schedule.by_time:
            raise CheckpointError(
                "sharded=True cannot be combined with a time in memory_every", hint="Give a number of steps."
            )
        uris = [uri or environment.checkpoint_uri() or DEFAULT_FOLDER]
        if local is not None:
            uris.insert(0, local)
        retention = RetentionPolicy(keep, self._best)
        self._stores = [CheckpointStore.at(one, retention) for one in uris]
        if len({store.uri for store in self._stores}) < len(uris):
            raise CheckpointError(f"local and uri are both {self.uri}", hint="Omit one of them.")
        self._when_busy = when_busy
        self._asynchronous = asynchronous
        self._sharded = sharded
        self._sharded_saver: ShardedSaver | None = None
        self._background: BackgroundSaves[Task] = BackgroundSaves(self._commit)
        self._memory = MemoryTier.of(self.uri, sharers=sharded)
        self._candidates = Candidates(
            self._stores, self._best, self._memory, self._get_sharded_saver if sharded else None
        )
        self._sealing: BackgroundSaves[Task] = BackgroundSaves(self._keep_in_memory)
        self._copies = Copies(self._memory, sharded=sharded)
        self._failed = FailedSaves(self.uri)
        self._same_step = SameStep(self.uri)
        self._patience = save_patience()
        """The patience of the save that was submitted last."""
        self._save_at_end = save_at_end
        self._unsaved: tuple[int, Any, Mapping[str, float] | None] | None = None
        """The arguments of the last `maybe_save`, unless a save has followed."""
        self._last_step = 0
        """The step of the last `maybe_save`."""
        self._process = os.getpid()
        self._closed = False
        self._saved_for_exit = False
        """Whether a checkpoint has been saved since the notice that the job is about to be stopped."""

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # a failed save is logged anyway, and must not hide the exception
            self._wait()

    @property
    def uri(self) -> str:
        """The URI at which checkpoints are durable."""
        return self._stores[-1].uri

    @property
    def sharded(self) -> bool:
        """Whether all ranks save and restore together."""
        return self._sharded

    def steps(self) -> list[int]:
        """The committed steps, ascending; with ``local``, those in either store."""
        return sorted({step for store in self._stores for step in store.steps()})

    def save(
        self, step: int, state: Any, metrics: Mapping[str, float] | None = None, *, to: str = "storage"
    ) -> bool:
        """Save ``state`` as ``step``: copy it, then commit the copy while the training continues.

        Call it on every rank: rank 0 writes, the others return immediately. With ``sharded`` every rank writes its
        shards, and rank 0 everything else.

        Args:
            state: a tree of dicts, lists and tuples of torch tensors, NumPy arrays, numbers, strings, bytes,
                booleans and None. A tensor is saved without its device and its gradient. With ``sharded``
                also DTensors, ShardedTensors and `Shard`, under the same keys on every rank.
            metrics: numbers that describe this step, such as the validation loss.
            to: ``"memory"`` only copies the state into the memory of the host, where it survives the end of this
                process: cheap enough for every few steps.

        Returns:
            Whether the state was accepted. With ``to="memory"``, it is rejected if there is no space, or if the
            previous copy is still being hashed. Otherwise, it is rejected on ranks other than 0, for a step that this
            object saved or restored, and if ``when_busy`` is "skip" and the previous save is still being written.
            With ``sharded`` it is always accepted; a duplicate step is later skipped on all ranks.

        Raises:
            CheckpointError: the state holds an unsupported value; or an earlier save failed permanently: no permission,
                no space, or this or a later step was committed already. With ``sharded`` a failure on one rank is
                raised on all.

        While the storage does not answer, the save is retried for some minutes, and the training continues. The next
        save replaces it. Giving up a checkpoint is logged as a warning; with ``asynchronous=False``, this method
        raises the error.
        """
        if to not in ("storage", "memory"):
            raise CheckpointError(f"to={to!r} is unknown", hint="Known: storage, memory.")
        return self._save(step, state, metrics, "memory" if to == "memory" else self._when_busy)

    def is_due(self, step: int) -> bool:
        """Whether ``every`` makes `maybe_save` save ``step``. Call it for every step, in ascending order."""
        return self._schedule.is_due(step)

    def maybe_save(self, step: int, state: Any, metrics: Mapping[str, float] | None = None) -> bool:
        """Like `save`, but only when ``every`` is due, and once when the job is about to be stopped.

        Call it at every step, on every rank, in the main thread. From the first call on, SIGTERM no longer ends
        the process: see `cloudtrain.environment.preemption`. Follow it with `environment.exit_if_preempted`, which
        then exits only after this method has saved for the notice.

        Args:
            state: the state, or a function that returns it, which is called only when needed.
        """
        beat()
        self._last_step = step = checked_step(step)
        report_step(step)
        # Without this, a notice just after the check below would end the script without a save.
        set_exit_policy(lambda: self._saved_for_exit)
        if self._save_at_end and (self._sharded or environment.rank() == 0):
            self._unsaved = (step, state, metrics)
        if self._sharded:
            return self._maybe_save_sharded(step, state, metrics)
        stopping = environment.preemption() is not None and not self._saved_for_exit
        if environment.rank() != 0:
            return False
        if not (stopping or self._schedule.is_due(step)):
            self._maybe_save_to_memory(step, state, metrics)
            return False
        when_busy = "wait" if stopping else "leave" if self._when_busy == "wait" else self._when_busy
        saved = self._save(step, state() if callable(state) else state, metrics, when_busy)
        self._saved_for_exit |= stopping
        return saved

    def restore(
        self, step: int | str = "latest", *, into: Any = None, alone: bool = False
    ) -> Checkpoint | None:
        """The verified checkpoint of ``step``; new tensors are in host memory.

        Every rank may call it, and reads for itself. If the state is large, restore on rank 0 and broadcast.
        With ``sharded`` every rank must call it, and all get the same step. If the latest or best checkpoint is
        damaged, the next one in that order is used, with a warning.

        With ``local`` and ranks on several hosts, steps that are only in this host's folder are left out.

        Args:
            step: a step, ``"latest"``, or ``"best"`` according to the Checkpointer's ``best``.
            into: a state like the one that was saved. Its tensors, on any device, are filled and returned in the
                state; tensors that it lacks are created. After an error their contents are undefined.
                Of a sharded tensor only this rank's shards are read, whichever ranks saved it.
            alone: the other ranks do not restore, but get this rank's state by broadcast. All steps count, then.

        Returns:
            None if there is no checkpoint yet, and ``step`` is "latest" or "best".

        Raises:
            CheckpointError: there is no such step; it is damaged, or all are; a newer cloudtrain wrote it; a
                tensor of ``into`` does not fit; another rank has restored another step.
            StorageError: the storage failed.
        """
        with own_progress().restoring() as steps:
            beat()
            self._wait()
            with using(Patience(warn=warn, waiting=beat)):
                restored = self._restore(step, into, alone)
            if restored is not None:
                steps.append(restored.step)
        if not self._sharded and not alone:
            self._same_step.check(step, restored.step if restored else None)
        return restored

    def _restore(
        self, step: int | str, into: Any, alone: bool, *, stored_only: bool = False
    ) -> Checkpoint | None:
        candidates = self._candidates.find(step, alone=alone, stored_only=stored_only)
        with WorkerPool("cloudtrain-restore") as pool:
            for number, (source, candidate) in enumerate(candidates, 1):
                try:
                    return self._load(source, candidate, into, pool)
                except Damaged as error:
                    if number == len(candidates) and not isinstance(step, str) and source in self._stores:
                        raise
                    following = candidates[number] if number < len(candidates) else None
                    warn_of(f"{error.message}; {what_follows(source, following)}")
        stored = [(source, found) for source, found in candidates if source in self._stores]
        if candidates and not stored:  # copies in memory were found, so the storage was not waited for
            return self._restore(step, into, alone, stored_only=True)
        if stored:
            found_now = self._candidates.find(step, alone=alone, stored_only=stored_only)
            if found_now != stored:  # another process saves here and has deleted these
                return self._restore(step, into, alone, stored_only=stored_only)
            steps = ", ".join(map(str, sorted({candidate for _, candidate in stored})))
            raise CheckpointError(
                f"every checkpoint in {self.uri} is damaged: steps {steps}",
                hint="To start from scratch, use a different uri.",
            )
        return None

    def wait(self) -> None:
        """Block until every save is durable.

        Raises CheckpointError if the last save failed, or if an earlier permanent failure was not reported yet.
        """
        with own_progress().stalled():
            self._wait()
        self._raise_error()

    def close(self) -> None:
        """Save the last step according to ``save_at_end``, `wait`, and free the memory. It cannot save afterwards."""
        try:
            if self._process == os.getpid():
                if self._sharded_saver is not None:
                    self._sharded_saver.group.leave(self._last_step)
                self._save_unsaved()
        finally:
            self._closed = True
            self._wait()
            if not self._saved_for_exit:
                set_exit_policy(None)
            self._copies.close()
        self._raise_error()

    def _save_unsaved(self) -> None:
        if self._unsaved is None or self._closed:
            return
        (step, state, metrics), self._unsaved = self._unsaved, None
        if self._sharded:
            self._get_sharded_saver().group.vote_result((False, False), step)  # the vote of the last step
        self._save(step, state() if callable(state) else state, metrics, "wait")

    def _save(self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str) -> bool:
        beat()
        step = checked_step(step)
        if not self._sharded and environment.rank() != 0:
            return False
        self._check_usable()
        self._raise_error(lasting=True)
        if when_busy == "memory":
            if self._memory is None:
                return False
        else:
            own_progress().saved(step)
        began = time.monotonic()
        with own_progress().stalled():
            submit = self._save_sharded if self._sharded else self._save_alone
            saved = submit(step, state, metrics, when_busy)
            if saved and not self._asynchronous and when_busy != "memory":
                self.wait()
        if saved and when_busy != "memory":
            self._schedule.stopped(time.monotonic() - began)
        return saved

    def _save_alone(self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str) -> bool:
        self._same_step.saving()
        document, leaves = tree.encode(state)
        metadata = run_metadata(metrics or {})
        if when_busy == "memory":
            return self._submit_to_memory(State(step, document, leaves, metadata))
        if self._background.busy and when_busy != "queue":
            if when_busy == "skip":
                return False
            if not self._wait_or_replace(may_leave=when_busy == "leave"):
                return self._leave_in_memory(State(step, document, leaves, metadata))
            self._raise_error(lasting=True)
        if all(store.has(step) for store in self._stores):
            self._unsaved = None
            return False
        waiting = self._background.withdraw()
        if waiting is not None:
            self._copies.release(waiting.buffer)
        self._submit(State(step, document, leaves, metadata))
        return True

    def _save_sharded(
        self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str
    ) -> bool:
        """Runs on all ranks; ``when_busy`` is "wait" or "memory"."""
        saver = self._get_sharded_saver()
        to_memory = when_busy == "memory"
        if not to_memory:
            self._wait_or_replace()  # the failure of one rank fails the save on all
        self._raise_error(lasting=True)
        try:
            document, leaves, sharded = tree.encode_sharded(state)
            shards, own = own_shards(sharded, leaves)
            if saver.group.rank == 0:
                own = {**leaves, **own}
            metadata = {**run_metadata(metrics or {}), "world_size": saver.group.size}
            whole = State(step, document, own, metadata, shards)
            if to_memory:
                return self._submit_to_memory(whole)
            self._submit(whole)
        except Exception as error:  # the other ranks must not wait for this rank's part
            if to_memory:
                raise
            self._background.submit(Task(step, partial(fail, error), Buffer(), save_patience()))
            self._schedule.saved(step)
            raise
        return True

    def _submit(self, state: State) -> None:
        buffer = self._copies.take(state.step)
        self._patience = save_patience(whole=self._sharded)
        self._background.submit(self._copies.copy(state, buffer, self._patience))
        self._unsaved = None
        self._schedule.saved(state.step)
        self._memory_schedule.saved(state.step)

    def _submit_to_memory(self, state: State) -> bool:
        if self._sealing.busy:
            if not self._sharded:
                return False
            self._sealing.wait()  # all ranks keep the same steps
        slot = self._copies.take_slot(state.step)
        if slot is None:
            return False
        task = self._copies.copy(state, slot, self._patience)
        if not slot.is_shared:
            self._copies.release(slot)
            return False
        if slot.nbytes <= SMALL_COPY:
            self._keep_in_memory(task, None)
        else:
            self._sealing.submit(task)
        self._memory_schedule.saved(state.step)
        return True

    def _maybe_save_to_memory(self, step: int, state: Any, metrics: Mapping[str, float] | None) -> None:
        if self._memory is not None and self._memory_schedule.is_due(step):
            self._save(step, state() if callable(state) else state, metrics, "memory")

    def _maybe_save_sharded(self, step: int, state: Any, metrics: Mapping[str, float] | None) -> bool:
        """Ranks may see a notice or a due time at different steps, so they vote, and save at the next step."""
        group = self._get_sharded_saver().group
        due = self._schedule.is_due(step)
        any_due, stopping = group.vote_result((False, False), step)
        if self._schedule.by_time:
            due = any_due
        stopping &= not self._saved_for_exit
        try:
            if due or stopping:
                self._save(step, state() if callable(state) else state, metrics, "wait")
                self._saved_for_exit |= stopping
            else:
                self._maybe_save_to_memory(step, state, metrics)
        finally:
            due_here = self._schedule.by_time and self._schedule.is_due(step) and group.rank == 0
            group.start_vote((due_here, environment.preemption() is not None))
        return due or stopping

    def _commit(self, task: Task, pool: WorkerPool) -> None:
        began = time.monotonic()
        try:
            with using(task.patience):
                prepare = self._copies.seal(task, pool)
                if self._sharded_saver is not None:
                    self._sharded_saver.commit(task.step, prepare, pool)
                else:
                    prepared, _ = prepare()
                    for store in self._stores:
                        store.commit(prepared, pool)
        except BaseException as error:
            self._failed.failed(task.step, error)
        else:
            self._failed.committed(task.step)
            if self._memory is not None:
                self._memory.found_committed(task.step)
            self._schedule.committed(time.monotonic() - began)
        finally:
            self._copies.release(task.buffer)
            beat()

    def _keep_in_memory(self, task: Task, pool: WorkerPool | None) -> None:
        try:
            self._copies.seal(task, pool)()
        except BaseException as error:
            warn(f"the copy of step {task.step} in memory is not kept: {error}")
        finally:
            self._copies.release(task.buffer)

    def _get_sharded_saver(self) -> ShardedSaver:
        """Create it on the first call, which all ranks must make together."""
        if self._sharded_saver is None:
            self._sharded_saver = ShardedSaver(self._stores[0], RankGroup())
        return self._sharded_saver

    def _load(self, source: Source, step: int, into: Any, pool: WorkerPool) -> Checkpoint:
        if self._sharded_saver is not None:
            state = self._sharded_saver.load(source, step, into, pool)
        else:
            state = source.load(step, into, pool)
        if self._memory is not None and (self._sharded or environment.rank() == 0):
            self._memory.resume_from(step)
        if not self._candidates.is_away:
            for one in self._stores:
                one.resume_from(step)
        if source in self._stores:
            self._failed.committed(step)
        manifest = source.manifest(step)
        self._copies.grouping.resume_from(manifest)
        self._schedule.restored(step, manifest.job)
        self._memory_schedule.saved(step)
        if manifest.run in (None, os.environ.get(RUN_ID)):  # other jobs number their commits independently
            commits.committed(commits.CommitNumber(*manifest.elastic))
        beat()
        return Checkpoint(step, state, source.metrics(step), source.uri)

    def _check_usable(self) -> None:
        if self._closed:
            raise CheckpointError("the Checkpointer is closed", hint="Create another one to save again.")
        if self._process != os.getpid():
            raise CheckpointError(
                "the Checkpointer belongs to the process that this one was forked from",
                hint="Create it in the process that saves.",
            )

    def _wait(self) -> None:
        if self._process == os.getpid():  # a forked child has none of the threads
            self._background.wait()
            self._sealing.wait()

    def _wait_or_replace(self, *, may_leave: bool = False) -> bool:
        """Block until no save is running. One that waits for the storage is given up, because there is newer state.

        Args:
            may_leave: leave a request that hangs to its thread, if the next copy can be made in memory.

        Returns False if a request was left to its thread.
        """
        may_leave &= self._memory is not None and not self._memory.is_given_up
        look_at = time.monotonic() + BUSY_SECONDS
        while self._background.busy and self._process == os.getpid():
            if may_leave and time.monotonic() > look_at:
                look_at = math.inf
                if not answers(self.uri, ANSWER_SECONDS):
                    self._patience.give_up()
            if self._patience.away > REPLACE_SECONDS:
                self._patience.give_up()
            if may_leave and self._patience.ended:
                return False
            self._background.wait(POLL_SECONDS)
        return True

    def _leave_in_memory(self, state: State) -> bool:
        """Copy the state to memory only, because the storage does not answer."""
        kept = self._submit_to_memory(state)
        where = "it is only in the memory of this host" if kept else "there was no space in memory for it"
        self._failed.failed(state.step, Unreachable(f"{self.uri} does not answer; {where}"))
        self._schedule.saved(state.step)
        return kept

    def _raise_error(self, *, lasting: bool = False) -> None:
        error = self._failed.take(lasting=lasting)
        if error is not None:
            raise error
