"""Retries while a storage service is unavailable: one policy for every request, upload and download.

A request that fails because the service does not answer, drops the connection or is overloaded is sent again, with
growing pauses, until the service answers or the patience ends. Permanent errors, such as a wrong key, are raised
immediately. This replaces botocore's own retries; see `client`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Callable

LIMIT_VARIABLE = "CLOUDTRAIN_STORAGE_PATIENCE"
"""Seconds to try again; 0 gives up after three attempts."""
LIMIT = 300.0
PAUSE_VARIABLE = "CLOUDTRAIN_STORAGE_PAUSE"
"""Seconds before the second attempt; each further pause is up to twice as long."""
PAUSE = 0.5
LONGEST_PAUSE = 8.0
LOOK_SECONDS = 0.5
"""How often a pause checks whether its end has moved."""
ATTEMPTS = 3
"""Attempts of a request that fails quickly, however short the patience is: one lost connection is not an outage."""
ATTEMPTS_OF_BODIES = 8
"""Attempts to read a body beyond the same byte while the service answers: about 25 s. Then the object is damaged."""

QUIET_SECONDS = 3.0
"""An outage that is shorter is not worth a warning."""
WARNING_SECONDS = 60.0
"""Seconds from one warning to the next."""

Warn = Callable[[str], None]


class Patience:
    """How long to try again, and whom to warn. Shared by the threads of a transfer.

    Args:
        limit: seconds from the first failure of a request; None: `LIMIT_VARIABLE`, else `LIMIT`.
        warn: called with one line about an outage, at most once a minute.
        until: returns the monotonic time at which to give up, instead of after ``limit``; None: ``limit`` applies.
        cut: returns the monotonic time after which outputs are no longer read, even if the storage answers.
        waiting: called before every pause.
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        warn: Warn | None = None,
        until: Callable[[], float | None] | None = None,
        cut: Callable[[], float] | None = None,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        self.limit = limit
        self.warn = warn
        self.until = until
        self.cut = cut
        self.waiting = waiting
        self._lock = threading.Lock()
        self._ended = False
        self._interrupt = threading.Event()
        self._away_since: float | None = None
        self._warned_at = -math.inf

    @property
    def seconds(self) -> float:
        """How long to try again."""
        return _setting(LIMIT_VARIABLE, LIMIT) if self.limit is None else self.limit

    @property
    def away(self) -> float:
        """Seconds since the service stopped answering; 0.0 while it answers."""
        since = self._away_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def ended(self) -> bool:
        """Whether `give_up` was called."""
        return self._ended

    def give_up(self) -> None:
        """From now on, every failure is final. Ends all pauses."""
        self._ended = True
        self.interrupt()

    def interrupt(self) -> None:
        """Give up the requests that are failing now, as after Ctrl-C."""
        interrupt, self._interrupt = self._interrupt, threading.Event()
        interrupt.set()

    def answered(self) -> None:
        """Record that the service answers. If a warning has reported the outage, report its end, once."""
        if self._away_since is None:
            return
        with self._lock:
            away, self._away_since = self.away, None
            warned, self._warned_at = self._warned_at > -math.inf, -math.inf
        if warned and away:
            self._say(f"the storage answers again after {away:.0f} s")

    def failed(self, where: str, why: str) -> None:
        """Record a failure, and warn about a long outage."""
        now = time.monotonic()
        with self._lock:
            if self._away_since is None:
                self._away_since = now
            away = now - self._away_since
            is_due = away >= QUIET_SECONDS and now - self._warned_at >= WARNING_SECONDS
            if is_due:
                self._warned_at = now
        if is_due:
            self._say(f"{where}: {why}; trying again, for {away:.0f} s so far")

    def outage(self, where: str) -> Outage:
        """A record of the failures of one request, or of one body that is being read, at the URI ``where``."""
        return Outage(self, where, self._interrupt)

    def _say(self, line: str) -> None:
        if self.warn:
            self.warn(line)
        else:
            import logging  # few processes have to wait

            logging.getLogger("cloudtrain.storage").warning("%s", line)


class Outage:
    """The failures of one request, or of one body that is being read: see `Patience.outage`."""

    def __init__(self, patience: Patience, where: str, interrupt: threading.Event) -> None:
        self._where = where
        self._patience = patience
        self._interrupt = interrupt
        self._began: float | None = None
        self._attempts = 0
        self._pause = _setting(PAUSE_VARIABLE, PAUSE)

    def wait(self, why: str, *, attempts: float = math.inf) -> bool:
        """Pause before the next attempt. Returns False if there should be none, as after the last of ``attempts``."""
        patience, now = self._patience, time.monotonic()
        self._began = now if self._began is None else self._began
        self._attempts += 1
        patience.failed(self._where, why)
        if now >= self._end or self._attempts >= attempts:
            return False
        import random  # few processes have to wait

        next_at = now + self._pause * random.uniform(0.5, 1)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        while (pause := min(next_at, self._end) - time.monotonic()) > 0:
            if patience.waiting:
                patience.waiting()
            if self._interrupt.wait(min(pause, LOOK_SECONDS)):
                return False
        return not patience.ended

    @property
    def _end(self) -> float:
        """When to give up, as monotonic time. It changes when a notice arrives during a pause."""
        if self._patience.ended:
            return -math.inf
        end = self._patience.until() if self._patience.until else None
        if end is not None:
            return end
        if self._attempts < ATTEMPTS:
            return math.inf
        return (self._began or 0.0) + self._patience.seconds


class _Scope(threading.local):
    patience: Patience | None = None


default = Patience()
"""The patience of this process, which a thread may replace by `using`."""
_scope = _Scope()


def current() -> Patience:
    """The patience of this thread."""
    return _scope.patience or default


@contextlib.contextmanager
def using(patience: Patience | None) -> Iterator[None]:
    """Use ``patience`` in this thread; None changes nothing."""
    before = _scope.patience
    _scope.patience = patience or before
    try:
        yield
    finally:
        _scope.patience = before


def _setting(variable: str, default: float) -> float:
    """A number of seconds from the environment; the default if it is not a number of at least 0."""
    try:
        value = float(os.environ.get(variable) or default)
    except ValueError:
        return default
    return value if value >= 0 else default
