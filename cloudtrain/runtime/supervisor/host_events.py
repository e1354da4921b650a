"""Copies what the hosts of a job record into the job's events, which only the supervisor writes.

A host writes its events into its own folder, where the script can write too. So they are not trusted: only a limited
number of bytes is read, only lines that are events, and only events that a host may record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.observe.events import OF_THE_SUPERVISOR, RECLAIMED, EventLog, parse_event, to_line
from cloudtrain.observe.hanging import HANGING, MOST_HANGS, Hanging, read_hanging
from cloudtrain.runtime.supervisor.folder import JobFolder

PART = 1 << 20
"""The most bytes that are read from one host at a time."""
MOST = 256 << 20
"""The most bytes that are read from one host in one attempt: more than two million metrics."""

OF_UPLOADS = ("uploaded", "discarded")
"""Events about the outputs. Only the supervisor records them if the hosts do not upload the outputs."""


@dataclass
class _Source:
    """The events of one host, as far as they have been read in this attempt."""

    name: str
    folder: Path
    key: str
    """The path of the events, relative to ``folder``."""
    position: int = 0
    pending: bytes = b""
    is_cut: bool = False
    """Whether the line that is being read is too long."""
    is_over: bool = False
    """Whether there are more events than may be read."""


class HostEvents:
    """The events of all hosts of a job.

    Args:
        uploads: whether the hosts upload the outputs themselves.
        most: the most bytes that are read from one host in one attempt.
    """

    def __init__(self, folder: JobFolder, events: EventLog, *, uploads: bool, most: int = MOST) -> None:
        self._folder = folder
        self._events = events
        self._not_theirs = OF_THE_SUPERVISOR if uploads else (*OF_THE_SUPERVISOR, *OF_UPLOADS)
        self._most = most
        self._sources: list[_Source] = []
        self.reclaimed: set[str] = set()
        """The hosts that were taken back in this attempt."""
        self.hangs: list[Hanging] = []
        """The hangs that hosts have reported."""

    def begin(self, hosts: Sequence[str]) -> None:
        """Begin a new attempt, in which ``hosts`` start with new files."""
        self._sources = []
        self.reclaimed.clear()
        for name in hosts:
            self.add(name)

    def add(self, name: str) -> None:
        """Read the new file of a host that starts, possibly for the second time in this attempt."""
        paths = self._folder.host(name)
        self._sources = [source for source in self._sources if source.name != name]
        self._sources.append(_Source(name, paths.base, paths.key(paths.events)))

    def collect(self) -> None:
        """Copy new events."""
        for source in self._sources:
            self._copy(source)

    def finish(self) -> None:
        """Copy all remaining events, after the hosts have ended."""
        for source in self._sources:
            while self._copy(source):
                pass

    def _copy(self, source: _Source) -> bool:
        """Copy the next part of one host's events. Returns whether there may be more."""
        try:
            data = self._read(source)
        except OSError:  # the file does not exist yet, or is not a regular file
            return False
        lines = b"".join(self._parse(source, data))
        if lines:
            with suppress(OSError):  # a full disk, or a removed folder, must not end the job
                self._events.append(lines)
        return bool(data)

    def _read(self, source: _Source) -> bytes:
        with Beneath(source.folder) as folder, folder.open(source.key) as file:
            size = os.fstat(file.fileno()).st_size
            if size < source.position:
                return b""  # the script has truncated it
            file.seek(source.position)
            data = file.read(min(PART, self._most - source.position))
            if source.position + len(data) == self._most < size and not source.is_over:
                source.is_over = True
                self._warn(source.name)
        source.position += len(data)
        return data

    def _warn(self, host: str) -> None:
        amount = f"{self._most >> 20} MiB" if self._most >> 20 else f"{self._most} bytes"
        message = (
            f"{host} has recorded more than {amount} of events: later ones, such as metrics, are not kept"
        )
        self._events.emit("warning", message=message)

    def _parse(self, source: _Source, data: bytes) -> Iterator[bytes]:
        """The lines of the events in ``data`` that a host may record."""
        *lines, source.pending = (source.pending + data).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                if not source.is_cut:
                    event = parse_event(line)
                    if event["event"] in self._not_theirs:
                        continue
                    if (
                        event["event"] == HANGING
                        and len(self.hangs) < MOST_HANGS
                        and (hang := read_hanging(event))
                    ):
                        self.hangs.append(hang)
                    if event["event"] == RECLAIMED:
                        self.reclaimed.add(source.name)
                    if event.get("source") == source.name and "time" in event:
                        yield line + b"\n"
                    else:
                        yield to_line({"time": round(time.time(), 3), **event, "source": source.name})
            source.is_cut = False
        if len(source.pending) > LARGEST_REPORT:
            source.pending, source.is_cut = b"", True
