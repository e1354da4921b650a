"""Finds metrics in the output of ranks with the regular expressions in ``metric_definitions``."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence

from cloudtrain._system.files import append_lines
from cloudtrain.observe import EventLog
from cloudtrain.runtime.output import Stream


class MetricFinder:
    """Records each metric in the lines of a host as an event.

    An expression may contain the rank as it appears in the log of all ranks: ``\\[rank 0\\] loss=(.*)``.

    All metrics in the lines of one call are written together, to a file that stays open until `close`, because a script
    may print hundreds of thousands of them in a second.
    """

    def __init__(self, definitions: Sequence[tuple[str, str]], events: EventLog) -> None:
        self._definitions = [
            (json.dumps(name), re.compile(regex).search, "rank" in regex) for name, regex in definitions
        ]
        self._events = events
        self._descriptor: int | None = None

    def __call__(self, stream: Stream, lines: Sequence[str]) -> None:
        """Record the metrics of ``lines``. Raises OSError if they cannot be written."""
        found = []
        head = json.dumps(self._events.record("metric"), ensure_ascii=False)[:-1]
        tail = f', "rank": {json.dumps(stream.rank)}}}\n'
        for line in lines:
            for name, search, may_name_rank in self._definitions:
                match = search(line) or (may_name_rank and search(stream.prefix.decode() + line))
                if not match:
                    continue
                try:
                    value = float(match[1])
                except (TypeError, ValueError, IndexError):
                    continue
                number = repr(value) if math.isfinite(value) else json.dumps(value)
                found.append(f'{head}, "name": {name}, "value": {number}{tail}')
        if found:
            if self._descriptor is None:
                self._descriptor = self._events.open()
            if self._descriptor is not None:
                append_lines(self._descriptor, "".join(found).encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
