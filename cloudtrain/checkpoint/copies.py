"""The copies of a state that a `Checkpointer` writes from: where they are, and when they can be reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from cloudtrain.checkpoint.format.tensor_files import FileGrouping
from cloudtrain.checkpoint.memory.tier import MemoryTier, SlotBuffer
from cloudtrain.checkpoint.sharded.saver import NO_SHARDS, Prepare, RankShards
from cloudtrain.checkpoint.store.store import PreparedSave
from cloudtrain.checkpoint.tensors.framework import Leaf
from cloudtrain.checkpoint.tensors.snapshot import Buffer
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError
from cloudtrain.observe.checkpointing import Unspoiled
from cloudtrain.storage.retry_policy import Patience


@dataclass(frozen=True)
class State:
    """The part of a state that a rank saves."""

    step: int
    document: Mapping[str, Any]
    leaves: Mapping[str, Leaf]
    metadata: Mapping[str, Any]
    shards: RankShards = NO_SHARDS


@dataclass(frozen=True)
class Task:
    """A save to be committed in the background."""

    step: int
    prepare: Prepare
    buffer: Buffer
    """Holds the snapshot; free for reuse afterwards."""
    patience: Patience


class Copies:
    """Buffers in the memory of the host, if it keeps checkpoints there, otherwise in that of this process.

    Args:
        sharded: whether a copy has only the shards of this rank.
    """

    def __init__(self, memory: MemoryTier | None, *, sharded: bool) -> None:
        self.grouping = FileGrouping()
        self._memory, self._sharded = memory, sharded
        self._buffers: list[Buffer] = []
        """Buffers of this process that are not in use."""

    def take_slot(self, step: int) -> SlotBuffer | None:
        """A buffer in the memory of the host for the copy of ``step``; None if there is none."""
        return None if self._memory is None else self._memory.take(step)

    def take(self, step: int) -> Buffer:
        """A buffer for the copy of ``step``."""
        return self.take_slot(step) or (self._buffers.pop() if self._buffers else Buffer())

    def copy(self, state: State, buffer: Buffer, patience: Patience) -> Task:
        """Copy the state into ``buffer``, to be released after the task. An exception releases it immediately."""
        unspoiled = Unspoiled()
        try:
            snapshot = buffer.snapshot(state.leaves)
        except BaseException:
            self.release(buffer)
            raise

        def prepare() -> tuple[PreparedSave, RankShards]:
            snapshot.wait()
            if problem := unspoiled.problem():
                raise CheckpointError(
                    f"its state is wrong: {problem}", hint="Resume from an earlier checkpoint."
                )
            files = self.grouping.files(snapshot)
            return PreparedSave(state.step, state.document, files, state.metadata), state.shards

        return Task(state.step, prepare, buffer, patience)

    def seal(self, task: Task, pool: WorkerPool | None) -> Prepare:
        """If the copy is in the memory of the host, make it whole. Returns the function that prepares the save."""
        if self._memory is None or not isinstance(task.buffer, SlotBuffer):
            return task.prepare
        try:
            prepared, shards = task.prepare()
            self._memory.seal(task.buffer, prepared, shards if self._sharded else None, pool)
        except Exception as error:
            return partial(fail, error)
        return lambda: (prepared, shards)

    def release(self, buffer: Buffer) -> None:
        """Allow ``buffer`` to be used for another copy."""
        if self._memory is not None and isinstance(buffer, SlotBuffer):
            self._memory.release(buffer)
        else:
            self._buffers.append(buffer)

    def close(self) -> None:
        """Free the memory of this process."""
        self._buffers.clear()
        if self._memory is not None:
            self._memory.close()


def fail(error: Exception) -> NoReturn:
    """The `Prepare` of a save that has failed already."""
    raise error
