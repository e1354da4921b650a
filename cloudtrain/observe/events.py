"""``events.jsonl``: every phase and state change of a job, one line of JSON each."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import NOT_A_FILE, append_lines, open_to_append
from cloudtrain._system.patterns import pattern
from cloudtrain._system.retries import TRANSIENT, again
from cloudtrain.contract import Paths
from cloudtrain.contract.documents import LARGEST_NUMBER, LARGEST_REPORT, Fields, parse_json
from cloudtrain.observe import steady

LONGEST_TEXT = 10_000
"""In characters: an event is one line of at most `LARGEST_REPORT` bytes."""

MARK = "[cloudtrain:event] "
"""The start of an event's line in the log of a job: see `cloudtrain.observe.event_lines`."""
SUPERVISOR = "supervisor"
"""The source of the events of the supervisor of a job, which is not a host."""
OF_THE_SUPERVISOR = ("attempt", "retry", "queued", "goodput", "job")
"""Events that no host reports: they are about the job as a whole."""

RECLAIMED = "reclaimed"
"""A host has received SIGTERM, or a notice that it is about to be reclaimed."""
SPARE = "spare"
"""A spare host is in a phase of its preparation, or waits."""
PLACES = "places"
"""Which spare hosts wait, and which ones have taken a place, where the hosts themselves assign places."""

Event = dict[str, Any]


@dataclass(frozen=True)
class EventLog:
    """Appends to a file of events. Several processes may append to the same file: each line is one write."""

    path: Path
    source: str
    """The writer: a host's name, or ``supervisor``."""
    clock: Callable[[], float] = steady.now

    def record(self, event: str, **fields: Any) -> Event:
        """An event with the current time, in seconds since the epoch, which is not appended. Long texts are cut."""
        fields = {name: _cut(value) for name, value in fields.items()}
        return {"time": round(self.clock(), 3), "source": self.source, "event": event, **fields}

    def emit(self, event: str, **fields: Any) -> Event:
        """Append one event and return it. If the disk is full or fails, the event is lost, but the job continues."""
        record = self.record(event, **fields)
        try:
            again(lambda: self.append(to_line(record)))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, *TRANSIENT):
                raise
        return record

    def append(self, lines: bytes) -> None:
        """Append whole lines, in one write. Raises OSError, such as for a full disk."""
        descriptor = self.open()
        if descriptor is not None:
            try:
                append_lines(descriptor, lines)
            finally:
                os.close(descriptor)

    def open(self) -> int | None:
        """The descriptor of the file, to append to.

        Replaces a link or a pipe that a script has put in its place; returns None for a folder or a device. Raises
        OSError.
        """
        for _ in range(2):
            try:
                return open_to_append(self.path, 0o644)
            except OSError as error:
                if error.errno not in NOT_A_FILE:
                    raise
            with contextlib.suppress(OSError):
                mode = self.path.lstat().st_mode
                if not (stat.S_ISLNK(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                    return None
                self.path.unlink()
        return None


def to_line(event: Event) -> bytes:
    """The line of an event in the file."""
    line = json.dumps(event, ensure_ascii=False, default=str) + "\n"
    return line.encode("utf-8", "backslashreplace")


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events in ``lines``, whose fields have the right types.

    Skips everything else: lines that a crash cut short, and those that are too long.
    """
    for line in lines:
        try:
            event = parse_event(line)
        except ValueError:
            continue
        yield event


def parse_event(line: str | bytes) -> Event:
    """The event in ``line``. Raises ValueError if it is not an event."""
    if len(line) > LARGEST_REPORT:
        raise ValueError("the line is too long")
    metric = _METRIC.fullmatch(line) if isinstance(line, str) else _METRIC_BYTES.fullmatch(line)
    if metric:  # there may be millions
        return _metric(*metric.groups())
    record: Event = parse_json(line)
    given = Fields(record)
    check = _CHECKS.get(given.text("event"))
    given.time("time", None)
    given.text("source", None)
    if check:
        check(given)
    return record


_NUMBER = r"(-?\d{1,20}(?:\.\d{1,20})?(?:e[-+]\d{1,3})?)"
_FORM = (
    r'\{"time": (\d{1,11}\.\d{1,3}), "source": "([\w.-]{1,255})", "event": "metric", "name": "([\w./-]{1,255})", '
    rf'"value": {_NUMBER}, "rank": (\d{{1,9}}|null)(?:, "step": (-?\d{{1,15}})(?:, "ranks": (\d{{1,9}}), '
    rf'"min": {_NUMBER}, "max": {_NUMBER}, "slowest": (\d{{1,9}}), "lag": {_NUMBER})?)?\}}'
)
"""A metric as a runtime writes it, unless its name or its value is unusual: several times faster to read than JSON."""
_METRIC = pattern(_FORM, re.ASCII)
_METRIC_BYTES = pattern(_FORM.encode())


def _metric(
    time: Any, source: Any, name: Any, value: Any, rank: Any, step: Any = None, ranks: Any = None, *rest: Any
) -> Event:
    if isinstance(source, bytes):
        source, name, rank = source.decode(), name.decode(), rank.decode()
    event: Event = {"time": float(time), "source": source, "event": "metric", "name": name}
    event["value"] = float(value)
    event["rank"] = None if rank == "null" else int(rank)
    if step is not None:
        event["step"] = int(step)
    if ranks is not None:
        least, most, slowest, lag = rest
        event |= {"ranks": int(ranks), "min": float(least), "max": float(most)}
        event |= {"slowest": int(slowest), "lag": float(lag)}
    return event


def read_events(path: Path) -> list[Event]:
    """All events of a file, oldest first; none if the file does not exist."""
    try:
        return list(parse_events(path.read_text(encoding="utf-8", errors="replace").splitlines()))
    except FileNotFoundError:
        return []


def _cut(value: Any) -> Any:
    return f"{value[:LONGEST_TEXT]}…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def _check_phase(given: Fields) -> None:
    given.text("phase")
    if given.text("state") == "ended":
        given.number("seconds", least=0)
        given.integer("bytes", 0)


def _check_progress(given: Fields) -> None:
    given.text("phase")
    given.integer("done")
    given.integer("total", None)


def _check_metric(given: Fields) -> None:
    given.text("name")
    given.time("time")
    given.any_number("value")
    if "step" not in given:
        return
    given.integer("step", least=-LARGEST_NUMBER)
    given.integer("rank", None, least=-1)
    given.integer("ranks", None, least=1)
    given.integer("slowest", None, least=-1)
    given.number("lag", None)
    given.boolean("late", None)
    for name in ("min", "max"):
        given.any_number(name, None)


def _check_kind(given: Fields) -> None:
    given.text("kind")
    given.text("uri", "")


def _check_host(given: Fields) -> None:
    given.integer("attempt", 0)
    given.integer("pid", 2, least=1)


def _check_step(given: Fields) -> None:
    given.integer("step", None, least=-LARGEST_NUMBER)
    given.integer("total", None, least=1)
    given.integer("pid", 2, least=1)
    for name in ("stalled", "seconds"):
        given.number(name, 0.0, least=0)


def _check_sample(given: Fields) -> None:
    from cloudtrain.observe.samples import check  # not at the start of every rank

    check(given)


_CHECKS: dict[str, Callable[[Fields], object]] = {
    "attempt": lambda given: given.integer("attempt", 0),
    "host": _check_host,
    "phase": _check_phase,
    "progress": _check_progress,
    "metric": _check_metric,
    "uploaded": _check_kind,
    "discarded": _check_kind,
    "step": _check_step,
    "restored": _check_step,
    PLACES: lambda given: given.text("text"),
    "save_interval": lambda given: given.text("text"),
    "sample": _check_sample,
    "outcome": lambda given: given.text("status"),
    "warning": lambda given: given.text("message"),
}
"""Functions by kind of event, which raise ValueError if a field that is read has the wrong type. Events of other
kinds are only shown."""


def record_warning(message: str) -> None:
    """Add a warning to the events of the job that this process is a rank of. Does nothing outside a job."""
    if "CLOUDTRAIN_RUN_DIR" not in os.environ:
        return
    with contextlib.suppress(OSError):  # such as a full disk; the log has the message, too
        EventLog(Paths.from_environ().events, os.environ.get("SM_CURRENT_HOST", "")).emit(
            "warning", message=message
        )
