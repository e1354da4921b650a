"""Prints the events of this host among its output: see `cloudtrain.observe.event_lines`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.observe.event_lines import EventThinner, encode_event
from cloudtrain.observe.events import OF_THE_SUPERVISOR, Event
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.new_events import NewEvents
from cloudtrain.runtime.output import write_lines

PAUSE = 0.5
"""Seconds between two looks at the file of events."""


class EventPrinter:
    """Prints what is added to the file of events, from its first line on. Use as a context manager.

    Ranks write to the same file, and a script may do anything to it: only lines that are events of a host are printed,
    with the values of secrets hidden, and not too many of them.
    """

    def __init__(self, config: HostConfig, environ: Mapping[str, str], target: int = 1) -> None:
        self._events = NewEvents(config.paths)
        self._hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
        self._target = target
        self._thinner = EventThinner()
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
            with suppress(OSError):  # there is no file yet, or something else in its place
                for events in self._events.read():
                    own = (event for event in events if event["event"] not in OF_THE_SUPERVISOR)
                    self._print(self._thinner.pass_on(own))
            self._print(self._thinner.rest() if ended else self._thinner.due())

    def _print(self, events: Iterable[Event]) -> None:
        lines = b"".join(encode_event(self._hider.hide_all(event)) for event in events)
        if lines:
            with suppress(OSError):  # a full disk: the file of events has them
                write_lines(self._target, lines)
