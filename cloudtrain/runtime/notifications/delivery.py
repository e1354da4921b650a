"""Sends the notifications in an outbox until all have arrived: several at a time, with growing pauses between tries."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Callable

from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import Outbox, Place
from cloudtrain.runtime.notifications.rules import Rule
from cloudtrain.runtime.notifications.send import NotSent, send

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries; each pause is twice as long as the previous one."""
NOTE_SECONDS = 3600.0
"""How often an unchanged error is recorded, so that the outbox stays small during an outage of days."""
MOST_CHANGES = 100
"""After this number of failed tries, changed errors are recorded just as rarely."""


@dataclass
class _Try:
    """The tries to send a notification to one place."""

    next_at: float = 0.0
    """The time of the next try, on the monotonic clock."""
    failures: int = 0
    is_running: bool = False
    is_over: bool = False
    """Whether the tries have ended."""
    noted: str = ""
    """The error that was last recorded in the outbox."""
    noted_at: float = 0.0


class Delivery:
    """Sends the notifications of an outbox, whose lock this process holds.

    Args:
        environ: contains the variables that ``rules`` refer to.
        hidden: the names of further variables whose values no error may show.
        most_tries: the most tries for each place; 0 for no limit.
    """

    def __init__(
        self,
        outbox: Outbox,
        rules: Sequence[Rule],
        environ: Mapping[str, str],
        *,
        hidden: Collection[str] = (),
        most_tries: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._rules = rules
        self._environ = environ
        self._hidden = hidden
        self._most_tries = most_tries
        self._clock = clock
        self._tries: dict[Place, _Try] = {}
        self._results: queue.SimpleQueue[tuple[Place, NotSent | None]] = queue.SimpleQueue()
        self._sent: set[Place] = set()

    def step(self) -> bool:
        """Start the tries that are due, and record the results of others. Returns whether something is left to do.

        Nothing is left if another process has taken the outbox over. Raises OSError if the outbox cannot be read.
        """
        self._collect()
        left = False
        for notification, number in self._outbox.read().due(self._rules):
            place = (notification.key, number)
            if place in self._sent:  # even if that could not be recorded
                continue
            state = self._tries.setdefault(place, _Try())
            if not state.is_running and not state.is_over:
                state.is_over = state.failures > 0 and self._is_late(notification, number, state)
                if not state.is_over and self._clock() >= state.next_at:
                    if self._outbox.is_taken_over:
                        return False
                    self._start(notification, number, state)
            left = left or not state.is_over
        return left

    @property
    def is_idle(self) -> bool:
        """Whether no try is running."""
        return not any(state.is_running for state in self._tries.values())

    def run(self, seconds: float, is_asked_to_end: Callable[[], bool] = lambda: False) -> None:
        """Send until nothing is left to do, for at most ``seconds``, or until a signal. Raises OSError."""
        until = self._clock() + seconds
        while self.step() and self._clock() < until and not is_asked_to_end():
            with suppress(OSError):  # a full disk
                self._outbox.beat()
            time.sleep(0.05)

    def _is_late(self, notification: Notification, number: int, state: _Try) -> bool:
        if self._most_tries:
            return state.failures >= self._most_tries
        return time.time() > notification.time + self._rules[number].retry_for

    def _start(self, notification: Notification, number: int, state: _Try) -> None:
        state.is_running = True
        place = (notification.key, number)

        def run() -> None:
            try:
                send(self._rules[number], notification, self._environ, self._hidden)
                self._results.put((place, None))
            except NotSent as error:
                self._results.put((place, error))
            except Exception as error:  # any error leads to another try
                self._results.put((place, NotSent(f"{type(error).__name__} while it was sent")))

        try:
            threading.Thread(target=run, daemon=True, name="notification").start()
        except RuntimeError:  # there are too many threads
            self._results.put((place, NotSent("no thread can be started")))

    def _collect(self) -> None:
        with suppress(queue.Empty):
            while True:
                place, error = self._results.get_nowait()
                state = self._tries[place]
                state.is_running = False
                if error is None:
                    self._sent.add(place)
                    with suppress(OSError):  # a full disk: the next process sends it again, with the same key
                        self._outbox.note_sent(place)
                    continue
                state.failures += 1
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (state.failures - 1)) * random.uniform(0.8, 1.2)
                state.next_at = self._clock() + max(pause, error.wait)
                state.is_over = not error.again
                self._note_failed(place, state, error)

    def _note_failed(self, place: Place, state: _Try, error: NotSent) -> None:
        is_new = str(error) != state.noted and state.failures <= MOST_CHANGES
        if is_new or state.is_over or self._clock() >= state.noted_at + NOTE_SECONDS:
            with suppress(OSError):
                self._outbox.note_failed(place, str(error), may_arrive=error.again)
                state.noted, state.noted_at = str(error), self._clock()
