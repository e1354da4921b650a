"""Events as lines of a job's log, for platforms on which only the log of a running job can be read.

The runtime prints each event as ``[cloudtrain:event] {json}`` if `Settings.event_lines` is set, and a client finds them
in the log. With `Settings.opaque_event_lines`, the JSON is in base64.

A script can print such lines too. A client trusts them no further than events that the script appends to the file of
events: they can be wrong about the script's own metrics, phases and warnings, and about nothing else.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Callable

from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.observe.events import MARK, OF_THE_SUPERVISOR, Event, parse_event
from cloudtrain.observe.summary import MOST_NAMES

_MARK_BYTES = MARK.encode()

LONGEST = 4000
"""Bytes of a line. A pipe does not interleave it with others, and no container runtime splits it."""
INTERVAL = 1.0
"""Seconds between two lines of one metric, or of the progress of one phase."""
BURST, RATE = 200, 20.0
"""Limits for lines of other events: the number in a row, and the number per second after that."""
LATEST = 60.0
"""Maximum seconds between an event and its line. An event that claims a larger difference gets the line's time."""

_SHORTER = (2000, 500, 100, 20)
"""Characters of a text, and items of a list, in an event that is too long for a line."""


def encode_event(event: Event, *, is_opaque: bool = False) -> bytes:
    """The line of an event, with its line end. Long texts and lists are cut; empty if the event is still too long.

    Args:
        is_opaque: in base64, so that a search for text finds none of it.
    """
    line = _line(event, is_opaque)
    for size in _SHORTER:
        if len(line) <= LONGEST:
            return line
        line = _line({name: _cut(value, size) for name, value in event.items()}, is_opaque)
    return line if len(line) <= LONGEST else b""


def parse_event_line(line: str | bytes, host: str, printed_at: float | None = None) -> Event | None:
    """The event in a log line of ``host``; None if the line has no event that a host may report.

    Args:
        printed_at: when the line was printed, in seconds since the epoch.
    """
    if isinstance(line, str):
        line = line.encode("utf-8", "backslashreplace")
    if not line.startswith(_MARK_BYTES) or len(line) > LARGEST_REPORT:
        return None
    data = line[len(_MARK_BYTES) :].strip()
    try:
        event = parse_event(data if data.startswith(b"{") else b64decode(data, validate=True))
    except ValueError:
        return None
    if event["event"] in OF_THE_SUPERVISOR:
        return None
    if printed_at is not None and abs((event.get("time") or 0.0) - printed_at) > LATEST:
        event["time"] = round(printed_at, 3)
    event["source"] = host
    return event


@dataclass
class EventThinner:
    """Chooses the events that get a line. For a metric, or the progress of a phase, it is the latest of each second.

    All other events get one, unless there are thousands of them. The file of events has all.
    """

    clock: Callable[[], float] = time.monotonic
    _shown_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _held: dict[tuple[str, str], Event] = field(default_factory=dict)
    _allowance: float = BURST
    _looked_at: float = 0.0

    def pass_on(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that get a line now. `due` returns the others, later."""
        for event in events:
            kind = event["event"]
            if kind not in ("metric", "progress"):
                if kind == "phase":
                    self._held.pop(("progress", event["phase"]), None)
                if self._is_allowed():
                    yield event
                continue
            key = (kind, event["name" if kind == "metric" else "phase"])
            now = self.clock()
            if key not in self._shown_at and len(self._shown_at) == MOST_NAMES:
                continue
            if now - self._shown_at.get(key, now - INTERVAL) >= INTERVAL:
                self._shown_at[key] = now
                self._held.pop(key, None)
                yield event
            else:
                self._held[key] = event

    def due(self) -> Iterator[Event]:
        """The events that were held back, and get a line now."""
        now = self.clock()
        for key in [key for key in self._held if now - self._shown_at[key] >= INTERVAL]:
            self._shown_at[key] = now
            yield self._held.pop(key)

    def rest(self) -> Iterator[Event]:
        """All events that are still held back."""
        held, self._held = self._held, {}
        yield from held.values()

    def _is_allowed(self) -> bool:
        now = self.clock()
        self._allowance = min(BURST, self._allowance + RATE * (now - self._looked_at))
        self._looked_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _line(event: Event, is_opaque: bool) -> bytes:
    data = json.dumps(event, default=str).encode()
    return _MARK_BYTES + (b64encode(data) if is_opaque else data) + b"\n"


def _cut(value: Any, size: int) -> Any:
    if isinstance(value, str) and len(value) > size:
        return f"{value[:size]}…"
    if isinstance(value, (list, tuple)):
        return [_cut(item, size) for item in value[:size]]
    return {} if isinstance(value, dict) else value
