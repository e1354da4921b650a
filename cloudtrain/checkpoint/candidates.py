"""The checkpoints that `Checkpointer.restore` tries, one after the other: those in memory, those in the storage."""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from cloudtrain import environment
from cloudtrain.checkpoint.failed_saves import warn
from cloudtrain.checkpoint.format.layout import MAX_STEP
from cloudtrain.checkpoint.memory.source import WHERE, MemorySource
from cloudtrain.checkpoint.memory.tier import MemoryTier
from cloudtrain.checkpoint.retention import BestMetric
from cloudtrain.checkpoint.same_step import on_several_hosts
from cloudtrain.checkpoint.sharded.saver import ShardedSaver
from cloudtrain.checkpoint.store.store import CheckpointStore, Source
from cloudtrain.errors import CheckpointError, Unreachable
from cloudtrain.observe import beat
from cloudtrain.observe.events import record_warning
from cloudtrain.storage.reachable import answers
from cloudtrain.storage.retry_policy import Patience, using

AWAY_SECONDS = 3.0
"""How long a restore waits for storage that does not answer, if there is a copy in memory."""
KNOWN_AWAY_SECONDS = 1.0
"""The same if the host has a record that the storage has nothing newer, so that only a deletion could be missed."""

_STEPS = f'A step is a number from 0 to {MAX_STEP}; restore also takes "latest" and "best".'


class Candidates:
    """Where to restore from.

    Args:
        stores: the store of the local folder, if there is one, and that of the URI.
        sharded_saver: makes all ranks restore the same step; None if each rank restores for itself.
    """

    def __init__(
        self,
        stores: Sequence[CheckpointStore],
        best: BestMetric | None,
        memory: MemoryTier | None,
        sharded_saver: Callable[[], ShardedSaver] | None,
    ) -> None:
        self._stores, self._best, self._memory, self._sharded_saver = stores, best, memory, sharded_saver
        self.is_away = False
        """Whether the last `find` returned only copies in memory, because the storage did not answer."""

    def find(self, wanted: int | str, *, alone: bool, stored_only: bool = False) -> list[tuple[Source, int]]:
        """The sources and steps to restore from, in the order in which to try them.

        Args:
            stored_only: leave out the memory, and wait for the storage.
        """
        saver = self._sharded_saver() if self._sharded_saver else None
        tier = None if stored_only else self._memory
        memory = MemorySource(tier, saver.group.size if saver else environment.world_size())
        if saver is None:
            return self._own_candidates(wanted, alone, memory)
        sources: list[Source] = [memory, *self._stores]

        def ask() -> list[Any]:
            found = self._own_candidates(wanted, alone, memory)
            return [[[sources.index(source), step] for source, step in found], self.is_away]

        found, self.is_away = saver.ask_rank_0(ask)
        return [(sources[number], step) for number, step in found]

    def _own_candidates(
        self, wanted: int | str, alone: bool, memory: MemorySource
    ) -> list[tuple[Source, int]]:
        in_memory = memory.steps() if wanted != "best" else ()
        if self._sharded_saver is None and not alone and on_several_hosts():
            readable = self._stores[-1].steps() if in_memory else ()  # steps that other hosts can read
            in_memory = tuple(step for step in in_memory if step in readable)
        known = memory.committed
        if wanted == "latest":
            will_do = tuple(step for step in in_memory if known is None or step >= known)
        else:
            will_do = tuple(step for step in in_memory if step == wanted)
        stored = self._stored_steps(may_fail=bool(will_do), known=known)
        if self.is_away:
            in_memory = will_do
        elif known is not None:
            in_memory = self._without_deleted(in_memory, stored[self._stores[-1]], known)
        committed: dict[Source, Sequence[int]] = {memory: in_memory, **stored}
        if len(self._stores) > 1 and not alone and on_several_hosts():
            self._leave_out_local_steps(committed)
        steps = sorted({found for of_source in committed.values() for found in of_source})
        if isinstance(wanted, str):
            candidates = self._ranked(wanted, committed, steps)
        else:
            candidates = [checked_step(wanted)]
            if candidates[0] not in steps:
                names = ", ".join(map(str, steps)) or "none"
                raise CheckpointError(
                    f"{self._stores[-1].uri} has no checkpoint of step {wanted}", hint=f"Steps: {names}."
                )
        found = [(store, step) for step in candidates for store in committed if step in committed[store]]
        for problem in memory.remove_damaged():
            warn_of(f"{problem}; {what_is_first(found)}")
        return found

    def _stored_steps(self, *, may_fail: bool, known: int | None) -> dict[Source, Sequence[int]]:
        """The steps in each store; with ``may_fail``, nothing if the storage does not answer.

        Args:
            known: the newest committed step that the host has a record of.
        """
        uri = self._stores[-1].uri
        seconds = AWAY_SECONDS if known is None else KNOWN_AWAY_SECONDS
        self.is_away = may_fail and not answers(uri, seconds)
        until = time.monotonic() + seconds
        patience = Patience(warn=warn, waiting=beat, until=lambda: until) if may_fail else None
        try:
            if not self.is_away:
                with using(patience):
                    found: dict[Source, Sequence[int]] = {store: store.steps() for store in self._stores}
                if self._memory:
                    self._memory.found_committed(max(found[self._stores[-1]], default=-1))
                return found
        except Unreachable:
            if not may_fail:
                raise
            self.is_away = True
        unknown = "; it is unknown whether a later checkpoint was committed there"
        warn_of(f"{uri} does not answer; restoring from {WHERE}{unknown if known is None else ''}")
        return {}

    def _without_deleted(
        self, in_memory: tuple[int, ...], stored: Sequence[int], known: int
    ) -> tuple[int, ...]:
        """``in_memory`` without the steps after those ``stored``, if ``known`` was deleted from the storage."""
        last = max(stored, default=-1)
        if (
            last >= known
            or not any(last < step <= known for step in in_memory)
            or self._stores[-1].is_there(known)
        ):
            return in_memory
        warn_of(
            f"checkpoint {known} was deleted from {self._stores[-1].uri}: its copy in memory is not restored"
        )
        return tuple(step for step in in_memory if not last < step <= known)

    def _leave_out_local_steps(self, committed: dict[Source, Sequence[int]]) -> None:
        """Leave out steps that the ranks of other hosts cannot read, because those would restore another step."""
        local, shared = self._stores
        newer = [step for step in committed[local] if step > max(committed[shared], default=-1)]
        committed[local] = [step for step in committed[local] if step in committed[shared]]
        for step in newer:
            local.mark_damaged(step)  # the training may reach it again, and then replaces it
        if newer:
            warn_of(
                f"step {newer[-1]} is in {local.uri} only, which other hosts cannot read: it is not restored. "
                "To use it, let rank 0 restore for all ranks: restore_or_broadcast"
            )

    def _ranked(self, wanted: str, committed: Mapping[Source, Sequence[int]], steps: list[int]) -> list[int]:
        """``steps`` in the order in which to try them."""
        if wanted == "latest":
            return steps[::-1]
        if wanted != "best":
            return [checked_step(wanted)]  # raises
        if self._best is None:
            raise CheckpointError(
                'restore("best") needs a metric to compare', hint='Set one: Checkpointer(best="loss").'
            )
        metrics = {step: store.metrics(step) for store, found in committed.items() for step in found}
        ranked = self._best.ranked(metrics)
        if steps and not ranked:
            raise CheckpointError(
                f"no checkpoint in {self._stores[-1].uri} has the metric {self._best.name!r}",
                hint="Pass it to save: metrics={...}.",
            )
        return ranked


def what_is_first(candidates: Sequence[tuple[Source, int]]) -> str:
    """The candidate that `restore` tries first, as a clause for a warning."""
    if not candidates:
        return "there is no other checkpoint"
    source, step = candidates[0]
    return f"restoring step {step} from {source.uri}"


def what_follows(source: Source, following: tuple[Source, int] | None) -> str:
    """The candidate that `restore` tries after a damaged checkpoint, as a clause for a warning."""
    if following is None or following[0] is source:
        return "going back to the one before it"
    return what_is_first([following])


def warn_of(message: str) -> None:
    """Warn the script and the job."""
    warnings.warn(message, RuntimeWarning, stacklevel=4)
    record_warning(message)


def checked_step(step: Any) -> int:
    """``step`` as a number. Raises CheckpointError."""
    try:
        number = operator.index(step)
    except TypeError:
        raise CheckpointError(f"step {step!r} is not a whole number", hint=_STEPS) from None
    if not 0 <= number <= MAX_STEP:
        raise CheckpointError(f"step {number} is out of range", hint=_STEPS)
    return number
