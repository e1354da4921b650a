"""Prints the events of this host among its output: see `cloudtrain.observe.event_lines`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import Paths
from cloudtrain.observe.event_lines import EventThinner, encode_event
from cloudtrain.observe.events import OF_THE_SUPERVISOR, Event, parse_events
from cloudtrain.observe.growing import Bookmark, new_lines
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.output import write_lines

PART_BYTES = 1 << 20
"""Bytes that are read at a time."""
MOST_BYTES = 1 << 30
"""The most bytes that are read in total, because a process may write forever."""


class NewEvents:
    """The events in the file of this host."""

    def __init__(self, paths: Paths) -> None:
        self._folder = paths.base
        self._key = paths.key(paths.events)
        self._mark = Bookmark()

    def read(self) -> Iterator[list[Event]]:
        """The events that have not been returned before, in batches.

        Raises OSError if the file is missing, or is not a regular file.
        """
        with Beneath(self._folder) as folder, folder.open(self._key) as file:

            def part(position: int) -> bytes:
                file.seek(position)
                return file.read(max(0, min(PART_BYTES, MOST_BYTES - position)))

            for lines in new_lines(part, self._mark):
                yield [*parse_events(filter(None, lines))]


PAUSE = 0.5
"""Seconds between two looks at the file of events."""


class EventPrinter:
    """Prints the events in the file, from its first line on, as they are added. Use as a context manager.

    Ranks and the script can write to this file. So only lines that are events of a host are printed, in a limited
    number, and with the values of secrets hidden.
    """

    def __init__(self, config: HostConfig, environ: Mapping[str, str], target: int = 1) -> None:
        self._events = NewEvents(config.paths)
        self._hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
        self._host = config.host.current
        self._is_opaque = config.settings.opaque_event_lines
        self._target = target
        self._thinner = EventThinner()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def __enter__(self) -> EventPrinter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Print the remaining events."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(PAUSE)
            with suppress(OSError):  # the file does not exist yet, or is not a regular file
                for events in self._events.read():
                    self._print(self._thinner.pass_on(filter(self._is_own, events)))
            self._print(self._thinner.rest() if ended else self._thinner.due())

    def _is_own(self, event: Event) -> bool:
        """Whether to print an event. This includes events of hosts whose output this one prints, except samples."""
        kind = event["event"]
        return kind not in OF_THE_SUPERVISOR and (kind != "sample" or event.get("source") == self._host)

    def _print(self, events: Iterable[Event]) -> None:
        lines = b"".join(
            encode_event(self._hider.hide_all(event), is_opaque=self._is_opaque) for event in events
        )
        if lines:
            with suppress(OSError):  # a full disk: the file of events has them
                write_lines(self._target, lines)
