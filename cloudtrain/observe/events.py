"""``events.jsonl``: every phase and state change of a job, one line of JSON each."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from cloudtrain._system.files import APPEND


@dataclass(frozen=True)
class EventLog:
    """Appends to a file of events. Several processes may append to the same file: each line is one write."""

    path: Path
    source: str
    """The writer: a host's name, or ``supervisor``."""
    clock: Callable[[], float] = time.time

    def record(self, event: str, **fields: Any) -> dict[str, Any]:
        """An event of this moment, which is not appended. ``time`` is in seconds since the epoch."""
        return {"time": round(self.clock(), 3), "source": self.source, "event": event, **fields}

    def emit(self, event: str, **fields: Any) -> dict[str, Any]:
        """Append one event and return it. On a full disk it is lost: no job ends for that."""
        record = self.record(event, **fields)
        line = json.dumps(record, ensure_ascii=False, default=str) + "\n"
        descriptor = os.open(self.path, APPEND, 0o644)
        try:
            os.write(descriptor, line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        finally:
            os.close(descriptor)
        return record


def parse_events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The events in ``lines``. Skips lines that a crash cut short."""
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def read_events(path: Path) -> list[dict[str, Any]]:
    """All events of a file, oldest first; none if the file does not exist."""
    try:
        return list(parse_events(path.read_text(encoding="utf-8", errors="replace").splitlines()))
    except FileNotFoundError:
        return []
