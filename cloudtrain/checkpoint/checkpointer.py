"""`Checkpointer`: saves the state of a training, and finds the last one again."""

from __future__ import annotations

import logging
import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from cloudtrain import environment
from cloudtrain.checkpoint import _tree
from cloudtrain.checkpoint._about import about_run
from cloudtrain.checkpoint._background import Background
from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._keep import Best, BestArgument, Keep
from cloudtrain.checkpoint._objects import Grouping
from cloudtrain.checkpoint._place import Place, Save
from cloudtrain.checkpoint._ranks import Ranks
from cloudtrain.checkpoint._schedule import Every, schedule
from cloudtrain.checkpoint._shards import NO_SHARDS, RankShards, own_shards
from cloudtrain.checkpoint._snapshot import Buffer
from cloudtrain.checkpoint._together import Prepare, Together
from cloudtrain.checkpoint.layout import MAX_STEP
from cloudtrain.environment.exit_policy import set_exit_policy
from cloudtrain.errors import CheckpointError, CloudtrainError
from cloudtrain.observe import beat
from cloudtrain.storage import open_store

DEFAULT_FOLDER = "checkpoints"
"""Where checkpoints go outside a job, below the working directory."""

BUSY = ("wait", "skip", "queue")

_STEPS = f'A step is a number from 0 to {MAX_STEP}; restore takes "latest" and "best" too.'
_log = logging.getLogger("cloudtrain.checkpoint")


@dataclass(frozen=True)
class Checkpoint:
    """What `Checkpointer.restore` gives back."""

    step: int
    state: Any
    metrics: Mapping[str, float]


class Checkpointer:
    """Checkpoints of one training run below one URI.

    A checkpoint is data first and a manifest last; it exists if and only if its manifest does. A process that
    is killed at any instant leaves every committed checkpoint whole.

    Steps only go up: a save at or below a committed step is refused, since it would mix two runs. Two cases
    are no mixture: a step that this object saved or restored is kept as it is, and one that it found damaged
    is replaced.

    A save copies the state into memory of its own, which is kept for the next one, and goes on beside the
    training. It needs no more memory than that copy, and a few megabytes. Python waits for it before it ends.
    For one thread at a time.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a path. The default is the job's, and
            ``./checkpoints`` outside a job.
        keep: how many checkpoints to keep, the newest ones; None keeps all.
        every: when `maybe_save` saves: a number of steps, or a time as ``"10m"`` or a timedelta.
        best: the metric whose best checkpoint is kept too, and is restored as ``"best"``: ``"loss"`` is best
            where it is smallest, ``("accuracy", "max")`` where it is largest.
        local: a folder, on a fast disk, where every checkpoint is committed first, and then in ``uri``.
        when_busy: what a save does while the one before it goes on. ``"wait"`` waits for its end, ``"skip"``
            saves nothing, and ``"queue"`` copies the state, for which it needs the memory a second time, and
            lets it wait, in the place of one that waits already.
        asynchronous: False makes `save` return when the checkpoint is durable.
        sharded: the state is itself spread over the ranks, as DTensors are: every rank saves its shards, and
            all call `save`, `maybe_save` and `restore` at the same steps. It needs the default process group
            of torch.distributed.
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
        sharded: bool = False,
    ) -> None:
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise CheckpointError(
                f"keep={keep!r} is no number of checkpoints", hint="Give at least 1, or None for all."
            )
        if when_busy not in BUSY:
            raise CheckpointError(f"when_busy={when_busy!r} is unknown", hint=f"Known: {', '.join(BUSY)}.")
        if sharded and (local is not None or when_busy != "wait"):
            raise CheckpointError(
                f"sharded=True cannot be together with {'local' if local else f'when_busy={when_busy!r}'}",
                hint="All ranks save to one place that they share, and at the same steps.",
            )
        self._best = Best.of(best)
        self._schedule = schedule(every)
        uris = [uri or environment.checkpoint_uri() or DEFAULT_FOLDER]
        if local is not None:
            uris.insert(0, local)
        kept = Keep(keep, self._best)
        self._places = [Place(open_store(_full_uri(place)), kept) for place in uris]
        if len({place.uri for place in self._places}) < len(uris):
            raise CheckpointError(f"local and uri are both {self.uri}", hint="Leave one of them out.")
        self._when_busy = when_busy
        self._asynchronous = asynchronous
        self._sharded = sharded
        self._team: Together | None = None
        self._background: Background[_Task] = Background(self._commit)
        self._grouping = Grouping()
        self._buffers: list[Buffer] = []
        self._error: CheckpointError | None = None
        self._process = os.getpid()
        self._closed = False
        self._heeded = False
        """Whether the job's end has been saved for."""

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # whose cause must not be hidden by ours, which is logged
            self._wait()

    @property
    def uri(self) -> str:
        """The durable place."""
        return self._places[-1].uri

    @property
    def sharded(self) -> bool:
        """Whether all ranks save and restore together."""
        return self._sharded

    def steps(self) -> list[int]:
        """The committed steps, ascending; with ``local``, those in either place."""
        return sorted({step for place in self._places for step in place.steps()})

    def save(self, step: int, state: Any, metrics: Mapping[str, float] | None = None) -> bool:
        """Save ``state`` as ``step``: copy it, and commit the copy beside the training.

        Call it on every rank: rank 0 writes, on the others it returns at once. With ``sharded`` every rank
        writes its shards, and rank 0 all else.

        Args:
            state: a tree of dicts, lists and tuples of torch tensors, NumPy arrays, numbers, strings, bytes,
                booleans and None. A tensor is saved without its device and its gradient. With ``sharded``
                also DTensors, ShardedTensors and `Shard`, under the same keys on every rank.
            metrics: numbers that belong to this step, such as the validation loss.

        Returns:
            Whether the state was taken. It was not on another rank, for a step that this object has saved or
            restored, and where ``when_busy`` is "skip" and the save before goes on. With ``sharded`` it is
            always taken, and left out later on all ranks alike.

        Raises:
            CheckpointError: the state holds something else; or the save before this one failed, by an error
                of the storage, or because the URI held this or a later step already. With ``sharded`` what
                fails on one rank is raised on all.
        """
        return self._save(step, state, metrics, self._when_busy)

    def maybe_save(self, step: int, state: Any, metrics: Mapping[str, float] | None = None) -> bool:
        """As `save`, if it is time to: when ``every`` says so, and once when the job is about to be stopped.

        Call it at every step, on every rank, in the main thread: from then on SIGTERM does not end the process,
        see `cloudtrain.environment.preemption`. Follow it with `environment.exit_if_preempted`, which from then
        on leaves when this has saved for the notice.

        Args:
            state: the state, or a function that makes it, which is called only when it is needed.
        """
        beat()
        step = _checked_step(step)
        set_exit_policy(lambda: self._heeded)  # and not at a notice that comes after the look below
        if self._sharded:
            return self._maybe_save_together(step, state, metrics)
        stopping = environment.preemption() is not None and not self._heeded
        if environment.rank() != 0 or not (stopping or self._schedule.is_due(step)):
            return False
        when_busy = "wait" if stopping else self._when_busy
        saved = self._save(step, state() if callable(state) else state, metrics, when_busy)
        self._heeded |= stopping
        return saved

    def restore(self, step: int | str = "latest", *, into: Any = None) -> Checkpoint | None:
        """The checkpoint of ``step``, verified; new tensors are in the host's memory.

        Every rank may call it: each reads for itself. For a large state let rank 0 restore, and broadcast.
        With ``sharded`` every rank must call it, and all get the same step.
        A latest or best checkpoint that is damaged is reported by a warning, and the one before is taken.

        Args:
            step: a step, ``"latest"``, or ``"best"`` as the Checkpointer's ``best`` says.
            into: a state like the one that was saved. Its tensors are filled, on any device, and stand in the
                state that is returned; what it lacks is made anew. After an error they may hold anything.
                Of a sharded tensor only this rank's shards are read, whichever ranks have saved it.

        Returns:
            None where there is no checkpoint yet, and the latest or best is asked for.

        Raises:
            CheckpointError: there is no such step; it is damaged, or all are; a newer cloudtrain wrote it; a
                tensor of ``into`` does not fit.
            StorageError: the storage failed.
        """
        beat()
        self._wait()
        sources = self._sources(step)
        with Crew("cloudtrain-restore") as crew:
            for number, (place, candidate) in enumerate(sources, 1):
                try:
                    return self._load(place, candidate, into, crew)
                except Damaged as error:
                    if number == len(sources) and not isinstance(step, str):
                        raise
                    message = f"{error.message}; going back to the one before it"
                    warnings.warn(message, RuntimeWarning, stacklevel=2)
        if sources:
            if self._sources(step) != sources:  # another process saves here, and has deleted these
                return self.restore(step, into=into)
            steps = ", ".join(map(str, sorted({candidate for _, candidate in sources})))
            raise CheckpointError(
                f"every checkpoint in {self.uri} is damaged: steps {steps}",
                hint="To start again from nothing, give another uri.",
            )
        return None

    def wait(self) -> None:
        """Until every save is durable. Raises CheckpointError where one failed that has not been told yet."""
        self._wait()
        self._raise_error()

    def close(self) -> None:
        """As `wait`; gives the memory back. There are no saves after it."""
        self._closed = True
        self._wait()
        if not self._heeded:
            set_exit_policy(None)
        self._buffers.clear()
        self._raise_error()

    def _save(self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str) -> bool:
        beat()
        step = _checked_step(step)
        if not self._sharded and environment.rank() != 0:
            return False
        self._check_usable()
        self._raise_error()
        submit = self._save_together if self._sharded else self._save_alone
        saved = submit(step, state, metrics, when_busy)
        if saved and not self._asynchronous:
            self.wait()
        return saved

    def _save_alone(self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str) -> bool:
        document, leaves = _tree.encode(state)
        about = about_run(metrics or {})
        if self._background.busy and when_busy != "queue":
            if when_busy == "skip":
                return False
            self.wait()
        if all(place.has(step) for place in self._places):
            return False
        waiting = self._background.take_back()
        if waiting is not None:
            self._buffers.append(waiting.buffer)
        self._submit(step, document, leaves, about)
        return True

    def _save_together(
        self, step: int, state: Any, metrics: Mapping[str, float] | None, when_busy: str
    ) -> bool:
        """On all ranks, which do alike: ``when_busy`` is "wait"."""
        team = self._together()
        self.wait()
        try:
            document, leaves, sharded = _tree.encode_sharded(state)
            shards, own = own_shards(sharded, leaves)
            if team.ranks.rank == 0:
                own = {**leaves, **own}
            about = {**about_run(metrics or {}), "world_size": team.ranks.size}
            self._submit(step, document, own, about, shards)
        except Exception as error:  # the others must not wait for this rank's part
            self._background.submit(_Task(step, partial(_raise, error), Buffer()))
            self._schedule.saved(step)
            raise
        return True

    def _submit(
        self,
        step: int,
        document: Mapping[str, Any],
        leaves: Mapping[str, _tree.Leaf],
        about: Mapping[str, Any],
        shards: RankShards = NO_SHARDS,
    ) -> None:
        buffer = self._buffers.pop() if self._buffers else Buffer()
        snapshot = buffer.snapshot(leaves)

        def prepare() -> tuple[Save, RankShards]:
            snapshot.wait()
            return Save(step, document, self._grouping.files(snapshot), about), shards

        self._background.submit(_Task(step, prepare, buffer))
        self._schedule.saved(step)

    def _maybe_save_together(self, step: int, state: Any, metrics: Mapping[str, float] | None) -> bool:
        """Ranks hear of the job's end, and find a time come, at different steps: they save at the step after."""
        ranks = self._together().ranks
        due = self._schedule.is_due(step)
        time_has_come, stopping = ranks.verdict((False, False))
        if self._schedule.by_time:
            due = time_has_come
        stopping &= not self._heeded
        try:
            if due or stopping:
                self._save(step, state() if callable(state) else state, metrics, "wait")
                self._heeded |= stopping
        finally:
            is_time = self._schedule.by_time and self._schedule.is_due(step)
            ranks.vote((is_time, environment.preemption() is not None))
        return due or stopping

    def _commit(self, task: _Task, crew: Crew) -> None:
        try:
            if self._team is not None:
                self._team.commit(task.step, task.prepare, crew)
            else:
                save, _ = task.prepare()
                for place in self._places:
                    place.commit(save, crew)
        except BaseException as error:
            reason, hint = (
                (error.message, error.hint) if isinstance(error, CloudtrainError) else (repr(error), "")
            )
            failed = CheckpointError(f"checkpoint {task.step} was not saved: {reason}", hint=hint)
            failed.__cause__ = error
            _log.error("%s", failed)
            self._error = failed
        finally:
            self._buffers.append(task.buffer)
            beat()

    def _together(self) -> Together:
        """The ranks of a sharded checkpoint, which meet at the first call."""
        if self._team is None:
            self._team = Together(self._places[0], Ranks())
        return self._team

    def _sources(self, wanted: int | str) -> list[tuple[Place, int]]:
        """Where the wanted checkpoint may be had, in the order in which they are tried."""
        if not self._sharded:
            return self._own_sources(wanted)
        steps = self._together().ask_first(lambda: [step for _, step in self._own_sources(wanted)])
        return [(self._places[0], step) for step in steps]

    def _own_sources(self, wanted: int | str) -> list[tuple[Place, int]]:
        places = {place: place.steps() for place in self._places}
        steps = sorted({step for committed in places.values() for step in committed})
        if isinstance(wanted, str):
            candidates = self._ranked(wanted, places, steps)
        else:
            candidates = [_checked_step(wanted)]
            if candidates[0] not in steps:
                known = ", ".join(map(str, steps)) or "none"
                raise CheckpointError(
                    f"{self.uri} has no checkpoint of step {wanted}", hint=f"Steps: {known}."
                )
        return [(place, step) for step in candidates for place in places if step in places[place]]

    def _load(self, place: Place, step: int, into: Any, crew: Crew) -> Checkpoint:
        load = self._team.load if self._team is not None else place.load
        state = load(step, into, crew)
        for other in self._places:
            other.adopt(step)
        self._grouping.adopt(place.manifest(step))
        self._schedule.saved(step)
        beat()
        return Checkpoint(step, state, place.metrics(step))

    def _ranked(self, wanted: str, places: Mapping[Place, Sequence[int]], steps: list[int]) -> list[int]:
        """``steps`` in the order in which they are tried."""
        if wanted == "latest":
            return steps[::-1]
        if wanted != "best":
            return [_checked_step(wanted)]  # raises
        if self._best is None:
            raise CheckpointError(
                'restore("best") has no metric to go by', hint='Give one: Checkpointer(best="loss").'
            )
        metrics = {step: place.metrics(step) for place, there in places.items() for step in there}
        ranked = self._best.ranked(metrics)
        if steps and not ranked:
            raise CheckpointError(
                f"no checkpoint in {self.uri} has the metric {self._best.metric!r}",
                hint="Give it to save: metrics={...}.",
            )
        return ranked

    def _check_usable(self) -> None:
        if self._closed:
            raise CheckpointError("the Checkpointer is closed", hint="Make another to save again.")
        if self._process != os.getpid():
            raise CheckpointError(
                "the Checkpointer belongs to the process that this one was forked from",
                hint="Make one in the process that saves.",
            )

    def _wait(self) -> None:
        if self._process == os.getpid():  # a forked child has none of the threads
            self._background.wait()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


@dataclass(frozen=True)
class _Task:
    """A save that is to be committed."""

    step: int
    prepare: Prepare
    buffer: Buffer
    """Holds the snapshot; free for the next one afterwards."""


def _raise(error: Exception) -> NoReturn:
    raise error


def _full_uri(uri: str | os.PathLike[str]) -> str:
    text: Any = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise CheckpointError(f"{uri!r} is no URI and no path", hint="Give s3://bucket/prefix, or a folder.")
    return text if "://" in text else Path(text).absolute().as_uri()


def _checked_step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise CheckpointError(f"step {step!r} is no whole number", hint=_STEPS) from None
    if not 0 <= number <= MAX_STEP:
        raise CheckpointError(f"step {number} is out of range", hint=_STEPS)
    return number
