"""Records the communication of a rank while it runs.

A training thread only takes timestamps and appends to a queue; another thread writes the file. While nothing is
recorded, `active` is None, and checking that is the only cost.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from cloudtrain._system.processes import after_fork_in_child
from cloudtrain.observe.progress import report_step
from cloudtrain.observe.timeline._writer import Writer
from cloudtrain.observe.timeline.clock import Ask, Clock, clock, measure

now = time.monotonic_ns


class Operation:
    """One operation from its request to its end. Times are nanoseconds of the monotonic clock.

    Args:
        done: called with the operation when it has ended.
        kind: allreduce, allgather, ...
        name: the name of the tensor or the bucket; may be empty.
        facts: details for readers of the timeline (JSON).
        negotiated: whether the ranks negotiate it.
    """

    __slots__ = (
        "_done",
        "agreed",
        "asked",
        "began",
        "carrier",
        "copies",
        "ended",
        "ends_when_waited",
        "facts",
        "kind",
        "name",
        "negotiated",
    )

    def __init__(
        self,
        done: Callable[[Operation], None],
        kind: str,
        name: str,
        facts: Mapping[str, Any],
        negotiated: bool,
    ) -> None:
        self._done = done
        self.negotiated = negotiated
        self.kind, self.name, self.facts = kind, name, facts
        self.copies: list[tuple[int, int]] = []
        """When data was copied into its buffer, before the request: pairs of begin and end."""
        self.carrier = ""
        """The data transport: ``GLOO``, ``NCCL``, ``MPI``, ``SHARED_MEMORY``; empty if the negotiation carried the
        data."""
        self.agreed: int | None = None
        """When all ranks had requested it, if it is negotiated."""
        self.began: int | None = None
        """When the transfer began, if known."""
        self.ended: int | None = None
        self.ends_when_waited = False
        """Whether the end is only noticed by waiting for the operation."""
        self.asked = now()

    def end(self, at: int | None = None) -> None:
        """Record that the operation is complete, by default now. A second call does nothing."""
        if self.ended is None:
            self.ended = now() if at is None else at
            self._done(self)

    def fail(self) -> None:
        """Record that the operation failed."""
        self.facts = {**self.facts, "failed": True}
        self.end()


FLUSH_SECONDS = 0.05
"""Almost as often as Horovod, whose test reads the file 0.1 s after a collective."""
OFFSET_FLUSHES = 600
"""Flushes between two measurements of the clock offset."""
CYCLE_NS = 1_000_000
"""Horovod's default cycle time."""


class Timeline:
    """Records one rank to one file.

    Args:
        path: the file. It is overwritten; its folder is created.
        ask: requests the time of rank 0; None if there is only one rank.
        mark_cycles: mark where one of Horovod's cycles would begin: at the first operation after ``cycle_ns``.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        rank: int,
        size: int,
        ask: Ask | None = None,
        *,
        mark_cycles: bool = False,
        cycle_ns: int = CYCLE_NS,
        clock: Clock = clock,
    ) -> None:
        self._queue: deque[Callable[[Writer], None]] = deque()
        self._unfinished: set[Operation] = set()
        self._ask = ask
        self._cycle_ns = cycle_ns if mark_cycles else None
        self._cycle = 0
        self._step: int | None = None
        self._steps = 0
        self._writer = Writer(path, rank, size, clock)
        self.settle: Callable[[], None] = lambda: None
        """Called first when the recording ends, to record operations that have ended elsewhere, such as on a GPU."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cloudtrain-timeline", daemon=True)
        self._thread.start()

    def operation(
        self, kind: str, name: str, facts: Mapping[str, Any], *, negotiated: bool = False
    ) -> Operation:
        """Record the request of an operation. The arguments are those of `Operation`."""
        operation = Operation(self._ended, kind, name, facts, negotiated)
        self._unfinished.add(operation)
        asked = operation.asked
        if self._cycle_ns is not None and asked - self._cycle > self._cycle_ns:
            self._cycle = asked
            self._queue.append(lambda writer: writer.cycle(asked))
        return operation

    def waited(self, label: str, began: int) -> None:
        """Record that this thread waited for an operation from ``began`` until now."""
        thread, ended = threading.current_thread().name, now()
        self._queue.append(lambda writer: writer.wait(thread, label, began, ended))

    def step_ended(self) -> None:
        """Record the end of this thread's optimizer step. The first call only marks the beginning of the next step."""
        thread, began, ended = threading.current_thread().name, self._step, now()
        if began is not None:
            self._steps += 1
            number = self._steps
            self._queue.append(lambda writer: writer.step(thread, number, began, ended))
        self._step = ended

    def close(self) -> None:
        """Write everything, including unfinished operations, and close the file."""
        self.settle()
        self._closing.set()
        self._thread.join()

    def _ended(self, operation: Operation) -> None:
        try:
            self._unfinished.remove(operation)
        except KeyError:  # two threads noticed the end
            return
        self._queue.append(lambda writer: writer.operation(operation))

    def _run(self) -> None:
        try:
            self._measure()
            for flush in itertools.count(1):
                if self._closing.wait(FLUSH_SECONDS):
                    break
                self._write()
                if flush % OFFSET_FLUSHES == 0:
                    self._measure()
            self._measure()
            for operation in list(self._unfinished):
                operation.facts = {**operation.facts, "unfinished": True}
                operation.end()
            self._write()
            self._writer.close()
        except OSError as error:
            self._writer.abandon()
            if active is self:
                stop_recording()
            path, reason = self._writer.path, error.strerror
            sys.stderr.write(f"[cloudtrain] timeline recording stopped: cannot write {path}: {reason}\n")

    def _measure(self) -> None:
        offset = measure(self._ask) if self._ask is not None else None
        if offset is not None:
            self._writer.offset(offset)

    def _write(self) -> None:
        for _ in range(len(self._queue)):
            self._queue.popleft()(self._writer)
        self._writer.flush()


active: Timeline | None = None
"""The current recording, if any."""


def start(timeline: Timeline) -> None:
    """Record to ``timeline`` from now on. Closes the previous one."""
    global active
    stop()
    active = timeline


def stop() -> None:
    """Stop recording and close the file."""
    timeline = active
    stop_recording()
    if timeline is not None:
        timeline.close()


def wait_for(wait: Callable[[], None], label: str, operation: Operation | None) -> None:
    """Call ``wait`` and record how long it took.

    Args:
        wait: waits for ``operation``. If it raises, the operation has failed.
        label: the operation's name.
        operation: None if its request was not recorded.
    """
    timeline = active
    if timeline is None:
        wait()
        return
    began = now()
    try:
        wait()
    except BaseException:
        if operation is not None:
            operation.fail()
        raise
    finally:
        timeline.waited(label, began)


def step_ended() -> None:
    """Report the end of this thread's optimizer step, and record it. Every framework's optimizer calls this."""
    report_step()
    timeline = active
    if timeline is not None:
        timeline.step_ended()


def stop_recording() -> None:
    """Stop recording in this process, without closing the file."""
    global active
    active = None


after_fork_in_child(stop_recording)
