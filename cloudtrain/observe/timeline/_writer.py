"""The file of one rank: Chrome's Trace Event Format, a JSON array whose end may be missing.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("JSON Array Format"). One event per
line, preceded by its comma: if a rank is killed, only its last line can be incomplete.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudtrain.observe.timeline.clock import Clock, Offset
    from cloudtrain.observe.timeline.recorder import Operation

META = "cloudtrain_timeline"
OFFSET = "cloudtrain_clock_offset"
STEP, WAIT = "STEP", "WAIT"
COPY_IN = "MEMCPY_IN_FUSION_BUFFER"
_THREADS = -1000
"""Sorts the threads' lanes above those of the operations."""


class Writer:
    """Writes records as lines of JSON. Times are those of ``clock.steady``.

    Raises:
        OSError: the file cannot be written. The methods raise it too.
    """

    def __init__(self, path: Path, rank: int, size: int, clock: Clock) -> None:
        self.path = path
        self._rank = rank
        self._clock = clock
        self._start = clock.steady()
        self._lanes = _Lanes()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        start_ns = clock.at(self._start)
        self._file.write("[")
        self._separator = "\n"
        self._meta(
            META,
            {
                "rank": rank,
                "size": size,
                "host": os.environ.get("SM_CURRENT_HOST") or socket.gethostname(),
                "process": os.getpid(),
                "start_ns": start_ns,
                "start_time_since_epoch_in_micros": start_ns // 1000,
            },
        )
        self._meta("process_name", {"name": f"rank {rank}"})
        self._meta("process_sort_index", {"sort_index": rank})
        self._file.flush()

    def operation(self, operation: Operation) -> None:
        """Write the operation's copies, its negotiation and the collective as nested spans."""
        kind, ended = operation.kind.upper(), operation.ended
        assert ended is not None
        first = operation.copies[0][0] if operation.copies else operation.asked
        wanted = f"{operation.kind}.{operation.name or 'noname'}"
        number = self._number(self._lanes.place(wanted, first, ended))
        for copy in operation.copies:
            self._span(COPY_IN, "memcpy", number, *copy)
        started = operation.asked
        if operation.negotiated:
            agreed = operation.agreed
            facts = operation.facts if agreed is None else None
            started = ended if agreed is None else agreed
            self._span(f"NEGOTIATE_{kind}", "negotiate", number, operation.asked, started, facts)
            if agreed is None:
                return
        self._span(kind, "operation", number, started, ended, operation.facts)
        if operation.carrier:
            began = operation.began
            if began is not None:
                self._span("QUEUE", "queue", number, started, began)
            self._span(f"{operation.carrier}_{kind}", "collective", number, began or started, ended)

    def wait(self, thread: str, label: str, began: int, ended: int) -> None:
        self._span(WAIT, "wait", self._number(thread, _THREADS), began, ended, {"for": label})

    def step(self, thread: str, step: int, began: int, ended: int) -> None:
        self._span(STEP, "step", self._number(thread, _THREADS), began, ended, {"step": step})

    def cycle(self, at: int) -> None:
        self._event("CYCLE_START", "i", "cycle", f',"s":"p","tid":0,"ts":{self._micros(at)}')

    def offset(self, offset: Offset) -> None:
        self._meta(OFFSET, vars(offset))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Complete the array and close the file."""
        self._file.write("\n]\n")
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, after a failed write."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _number(self, lane: str, place: int = 0) -> int:
        number, is_new = self._lanes.number(lane)
        if is_new:
            self._meta("thread_name", {"name": lane}, number)
            self._meta("thread_sort_index", {"sort_index": place + number}, number)
        return number

    def _span(self, name: str, category: str, lane: int, began: int, ended: int, facts: Any = None) -> None:
        arguments = f',"args":{json.dumps(facts)}' if facts else ""
        times = f',"tid":{lane},"ts":{self._micros(began)},"dur":{(ended - began) / 1000:.3f}'
        self._event(name, "X", category, times + arguments)

    def _meta(self, name: str, arguments: dict[str, Any], lane: int = 0) -> None:
        self._event(name, "M", "meta", f',"tid":{lane},"args":{json.dumps(arguments)}')

    def _event(self, name: str, phase: str, category: str, rest: str) -> None:
        line = f'{{"name":"{name}","cat":"{category}","ph":"{phase}","pid":{self._rank}{rest}}}'
        self._file.write(self._separator + line)
        self._separator = ",\n"

    def _micros(self, steady: int) -> str:
        """Microseconds since the beginning of the file."""
        return f"{(steady - self._start) / 1000:.3f}"


class _Lanes:
    """Rows of the picture: one per name, and more if operations of that name overlap in time."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def number(self, lane: str) -> tuple[int, bool]:
        """The lane's number in the file, from 1, and whether it is new."""
        known = len(self._numbers)
        number = self._numbers.setdefault(lane, known + 1)
        return number, len(self._numbers) > known

    def place(self, name: str, began: int, ended: int) -> str:
        """A lane in which nothing ended after ``began``. Call it roughly in the order of ends."""
        lane = next(lane for lane in _numbered(name) if self._ends.get(lane, 0) <= began)
        self._ends[lane] = ended
        return lane


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        number += 1
        yield f"{name} ({number})"
