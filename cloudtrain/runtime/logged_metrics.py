"""Records the metrics that the ranks of this host log with ``cloudtrain.log``: one event per metric and step."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain.contract import RankSlot
from cloudtrain.contract.documents import LARGEST_NUMBER, is_list_of, parse_json
from cloudtrain.observe import EventLog
from cloudtrain.observe.events import Event, to_line
from cloudtrain.observe.growing import Bookmark, new_lines
from cloudtrain.observe.metric_log import LONGEST_NAME, metrics_path
from cloudtrain.runtime.run_folder import heartbeat_path

INTERVAL = 1.0
"""Seconds between two looks at the files."""
CLOSE_SECONDS = 10.0
"""How long the end of a job waits for a disk that does not respond."""
MOST_CLOSE_SECONDS = 120.0
"""How long the end of a job waits for the last values in total."""
MOST_LOOKS = 5
"""The number of looks for the values of ranks that have not logged a step."""
MOST_NAMES = 1000
"""The most metrics. Others are ignored, because a script may log any number of them."""
MOST_LINES = 100
"""After this number of lines of one rank, complete steps are recorded, because a script may write without end."""
CHUNK = 1 << 20
LONGEST_LINE = 4 << 20
"""Bytes. With the longest names, `cloudtrain.observe.metric_log.MOST_VALUES` values need 3 MB in JSON."""
LOST = (
    "metrics of cloudtrain.log() are lost: more were logged than this host could record in "
    f"{MOST_CLOSE_SECONDS:.0f} s after the end"
)


@dataclass
class _Step:
    """The values of one metric at one step, by rank: the value and its time."""

    is_late: bool
    """Whether the step has been recorded without these values."""
    values: dict[int, tuple[float, float]] = field(default_factory=dict)
    looks: int = 0
    """The number of looks for further values."""


@dataclass
class _Metric:
    """The state of one metric."""

    last: dict[int, int] = field(default_factory=dict)
    """The last step of each rank that logs it."""
    recorded: float = -math.inf
    """The highest step that has been recorded."""
    looks: int = 0

    def add(self, step: int, rank: int) -> bool:
        """Record that ``rank`` logged ``step``. Returns whether this is too late for the record of the step."""
        if step <= self.last.get(rank, step - 1):  # the script is back at an earlier step, as after a restore
            self.recorded = min(self.recorded, step - 1)
            self.last = {other: min(last, step - 1) for other, last in self.last.items()}
        self.last[rank] = step
        return step <= self.recorded


class LoggedMetrics:
    """Reads the files of this host's ranks in a thread, until `close`. Create it before the ranks start.

    A step is recorded when all ranks that log the metric have logged it, or after `MOST_LOOKS` seconds.

    Args:
        others: returns further events to record. Called every second.
    """

    def __init__(
        self,
        run: str,
        slots: Sequence[RankSlot],
        events: EventLog,
        others: Callable[[], Iterable[Event]] = tuple,
    ) -> None:
        paths = [metrics_path(heartbeat_path(run, slot.local_rank)) for slot in slots]
        for path in paths:
            with contextlib.suppress(OSError):
                os.unlink(path)  # an earlier attempt has left it
        self._files = {path: Bookmark() for path in paths}
        self._events = events
        self._others = others
        self._metrics: dict[str, _Metric] = {}
        self._steps: dict[tuple[str, int], _Step] = {}
        self.heard = 0.0
        """When a rank last logged anything, on the clock of `time.monotonic`; 0 for never."""
        self._parts = 0
        """How often the thread has recorded events, as a sign that the disk does not hang."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logged-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Record the remaining values after the ranks have ended. A disk that hangs delays this by `CLOSE_SECONDS`."""
        self._ended.set()
        until, parts = time.monotonic() + MOST_CLOSE_SECONDS, -1
        while self._thread.is_alive():
            if time.monotonic() >= until:
                with contextlib.suppress(OSError):
                    self._events.emit("warning", message=LOST)
                return
            if parts == self._parts:  # the disk hangs
                return
            parts = self._parts
            self._thread.join(min(CLOSE_SECONDS, max(until - time.monotonic(), 0.0)))

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(INTERVAL)
            for metric in self._metrics.values():
                metric.looks += 1
            for found in self._steps.values():
                found.looks += 1
            has_more = True
            while has_more:
                more = [self._read(path, mark) for path, mark in self._files.items()]
                has_more = any(more)
                self._record([*self._due(ended and not has_more), *self._others()])

    def _read(self, path: str, mark: Bookmark) -> bool:
        """Add some of the new lines of a rank. Returns whether there may be more."""
        count = 0
        for line in _read(path, mark):
            count += 1
            self.heard = time.monotonic()
            self._add(line)
        return count > MOST_LINES

    def _record(self, events: Sequence[Event]) -> None:
        self._parts += 1
        if events:
            with contextlib.suppress(OSError):  # a full disk: the job continues without them
                self._events.append(b"".join(map(to_line, events)))

    def _add(self, line: str) -> None:
        for moment, step, rank, name, value in _parse(line):
            if name not in self._metrics and len(self._metrics) == MOST_NAMES:
                continue
            is_late = self._metrics.setdefault(name, _Metric()).add(step, rank)
            self._steps.setdefault((name, step), _Step(is_late)).values[rank] = (value, moment)

    def _due(self, ended: bool) -> Iterator[dict[str, Any]]:
        """The events of the steps that are complete, in the order in which they began."""
        for (name, step), found in list(self._steps.items()):
            metric = self._metrics[name]
            # at first, it is unknown which ranks log the metric
            ranks = len(metric.last) if metric.looks > MOST_LOOKS else len(self._files)
            if ended or len(found.values) >= ranks or found.looks > MOST_LOOKS:
                del self._steps[name, step]
                metric.recorded = max(metric.recorded, step)
                yield self._event(name, step, found)

    def _event(self, name: str, step: int, found: _Step) -> dict[str, Any]:
        values = found.values
        numbers = [value for value, _ in values.values()]
        slowest = max(values, key=lambda rank: values[rank][1])
        last = values[slowest][1]
        fields: dict[str, Any] = {"rank": slowest if len(values) == 1 else None, "step": step}
        if len(values) > 1:
            first = min(moment for _, moment in values.values())
            fields |= {"ranks": len(values), "min": min(numbers), "max": max(numbers)}
            fields |= {"slowest": slowest, "lag": round(last - first, 3)}
        if found.is_late:
            fields["late"] = True
        event = self._events.record("metric", name=name, value=sum(numbers) / len(numbers), **fields)
        return {**event, "time": round(last, 3)}


def _read(path: str, mark: Bookmark) -> Iterator[str]:
    """The new lines of a file; none if it is not a regular file, because the script may have replaced it."""
    try:
        descriptor = open_regular(path, READ_REGULAR)
    except OSError:
        return
    read = 0
    try:
        for lines in new_lines(lambda position: os.pread(descriptor, CHUNK, position), mark, LONGEST_LINE):
            yield from lines
            read += len(lines)
            if read > MOST_LINES:
                return
    except OSError:
        return
    finally:
        os.close(descriptor)


def _parse(line: str) -> list[tuple[float, int, int, str, float]]:
    """The time, step, rank, name and value of each metric in a line; none if the line is invalid.

    If the step of a call is not a number, or is huge, only the metrics of that call are skipped.
    """
    try:
        rank, begin, moments, steps, lists, kinds, values = parse_json(line)
        times, numbers = (array("d", bytes.fromhex(digits)) for digits in (moments, values))
        names = [lists[kind] for kind in kinds]
        counts = len(times), len(steps), sum(map(len, names))
        if counts != (len(names), len(names), len(numbers)) or not all(
            is_list_of(str, each) for each in lists
        ):
            raise ValueError
        number = iter(numbers)
        return [
            (begin + moment, step, rank, name, value)
            for moment, step, each in zip(times, steps, names)
            for name, value in zip(each, number)
            if 0 < len(name) <= LONGEST_NAME and _is_whole(step) and _is_whole(rank)
        ]
    except (TypeError, ValueError, AttributeError, OverflowError, LookupError):
        return []


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and abs(number) <= LARGEST_NUMBER
