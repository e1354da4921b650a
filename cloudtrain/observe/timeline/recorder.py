"""What a rank does for the others and waits for, as it happens.

A training thread only notes times and appends to a queue; a thread beside it writes. Where nothing is recorded,
`active` is None, and nobody does more than ask for it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from cloudtrain.observe.timeline._writer import Writer
from cloudtrain.observe.timeline.clock import Ask, Clock, clock, measure
from cloudtrain.observe.timeline.operation import Operation
from cloudtrain.observe.timeline.operation import now as now

FLUSH_SECONDS = 0.5
OFFSET_TURNS = 60
"""After how many flushes the distance between the clocks is measured again."""
CYCLE_NS = 1_000_000
"""Horovod's cycle, where it is not set."""


class Timeline:
    """Records one rank, into one file.

    Args:
        path: is overwritten, and its folder is made.
        ask: how rank 0 is asked for its time; None where there is no other rank.
        mark_cycles: put a mark where a cycle of Horovod's would begin: at the first operation after ``cycle_ns``.

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
        self._under_way: set[Operation] = set()
        self._ask = ask
        self._cycle_ns = cycle_ns if mark_cycles else None
        self._cycle = 0
        self._step: int | None = None
        self._steps = 0
        self._writer = Writer(path, rank, size, clock)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cloudtrain-timeline", daemon=True)
        self._thread.start()

    def operation(
        self, kind: str, name: str, facts: Mapping[str, Any], *, negotiated: bool = False
    ) -> Operation:
        """An operation is asked for. Arguments of `Operation`."""
        operation = Operation(self._ended, kind, name, facts, negotiated)
        self._under_way.add(operation)
        asked = operation.asked
        if self._cycle_ns is not None and asked - self._cycle > self._cycle_ns:
            self._cycle = asked
            self._queue.append(lambda writer: writer.cycle(asked))
        return operation

    def waited(self, label: str, began: int) -> None:
        """This thread has waited for an operation since ``began``."""
        thread, ended = threading.current_thread().name, now()
        self._queue.append(lambda writer: writer.wait(thread, label, began, ended))

    def step_ended(self) -> None:
        """This thread's optimizer has made a step. The first such call only says where the next one begins."""
        thread, began, ended = threading.current_thread().name, self._step, now()
        if began is not None:
            self._steps += 1
            number = self._steps
            self._queue.append(lambda writer: writer.step(thread, number, began, ended))
        self._step = ended

    def close(self) -> None:
        """Write what is left, what is under way too, and end the file."""
        self._closing.set()
        self._thread.join()

    def _ended(self, operation: Operation) -> None:
        try:
            self._under_way.remove(operation)
        except KeyError:  # two threads have seen the end
            return
        self._queue.append(lambda writer: writer.operation(operation))

    def _run(self) -> None:
        try:
            self._measure()
            for turn in itertools.count(1):
                if self._closing.wait(FLUSH_SECONDS):
                    break
                self._write()
                if turn % OFFSET_TURNS == 0:
                    self._measure()
            self._measure()
            for operation in list(self._under_way):
                operation.facts = {**operation.facts, "unfinished": True}
                operation.end()
            self._write()
            self._writer.close()
        except OSError as error:
            self._writer.abandon()
            if active is self:
                stop_noting()
            sys.stderr.write(f"[cloudtrain] the timeline {self._writer.path} ends here: {error.strerror}\n")

    def _measure(self) -> None:
        offset = measure(self._ask) if self._ask is not None else None
        if offset is not None:
            self._writer.offset(offset)

    def _write(self) -> None:
        for _ in range(len(self._queue)):
            self._queue.popleft()(self._writer)
        self._writer.flush()


active: Timeline | None = None
"""What is recorded now; None, and this is all that it costs."""


def start(timeline: Timeline) -> None:
    """Record by it from now on; what was recorded before ends."""
    global active
    stop()
    active = timeline


def stop() -> None:
    """Record nothing more, and close the file."""
    timeline = active
    stop_noting()
    if timeline is not None:
        timeline.close()


def wait_for(wait: Callable[[], None], label: str, operation: Operation | None) -> None:
    """Call ``wait``, and record how long it took.

    Args:
        wait: waits for ``operation``, which has failed if it raises.
        label: what the operation is called.
        operation: None where its begin was not recorded.
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
    """This thread's optimizer has made a step; for every framework's optimizer to call after it."""
    timeline = active
    if timeline is not None:
        timeline.step_ended()


def stop_noting() -> None:
    """Record nothing more in this process."""
    global active
    active = None


os.register_at_fork(after_in_child=stop_noting)
