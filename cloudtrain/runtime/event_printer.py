"""Prints the events of this host among its output: see `cloudtrain.observe.event_lines`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain._system.beneath import Beneath
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.observe.event_lines import EventThinner, encode_event
from cloudtrain.observe.events import OF_THE_SUPERVISOR, Event, parse_event
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.output import write_lines

PAUSE = 0.5
"""Seconds between two looks at the file of events."""
PART = 1 << 20
"""Bytes that are read at a time."""
MOST = 1 << 30
"""Bytes that are read in all: a process may write forever."""


class EventPrinter:
    """Prints what is added to the file of events, from its first line on. Use as a context manager.

    Ranks write to the same file, and a script may do anything to it: only lines that are events of a host are printed,
    with the values of secrets hidden, and not too many of them.
    """

    def __init__(self, config: HostConfig, environ: Mapping[str, str], target: int = 1) -> None:
        self._folder = config.paths.base
        self._key = config.paths.events.relative_to(config.paths.base).as_posix()
        self._hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
        self._target = target
        self._thinner = EventThinner()
        self._position = 0
        self._pending = b""
        self._is_cut = False
        """Whether the line that is being read is too long."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def __enter__(self) -> EventPrinter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Print the rest."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(PAUSE)
            while data := self._read():
                self._print(self._thinner.pass_on(self._parse(data)))
            self._print(self._thinner.rest() if ended else self._thinner.due())

    def _print(self, events: Iterable[Event]) -> None:
        lines = b"".join(encode_event(self._hider.hide_all(event)) for event in events)
        if lines:
            with suppress(OSError):  # a full disk: the file of events has them
                write_lines(self._target, lines)

    def _read(self) -> bytes:
        """The next bytes of the file; none if there is none, or something else in its place."""
        try:
            with Beneath(self._folder) as folder, folder.open(self._key) as file:
                if os.fstat(file.fileno()).st_size < self._position:
                    return b""  # the script has cut it
                file.seek(self._position)
                data = file.read(min(PART, MOST - self._position))
        except OSError:
            return b""
        self._position += len(data)
        return data

    def _parse(self, data: bytes) -> Iterator[Event]:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                if not self._is_cut:
                    event = parse_event(line)
                    if event["event"] not in OF_THE_SUPERVISOR:
                        yield event
            self._is_cut = False
        if len(self._pending) > LARGEST_REPORT:
            self._pending, self._is_cut = b"", True
