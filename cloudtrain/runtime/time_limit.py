"""Counts the time that a job has run, all attempts together, where nothing but its pods outlives an attempt.

The time in which all hosts run counts, not that in which one waits for a node. It is kept next to the job's outputs, or
else its checkpoints, under an identity that only this job has: another job of the same name begins at zero. A job that
stores nothing counts each attempt alone.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Callable

from cloudtrain.contract import FailureClass, FailureReport, Settings
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.failure import TIME_LIMIT_CODE
from cloudtrain.errors import CloudtrainError, NotFound
from cloudtrain.storage import Store, open_store, patience

KEY = "running-time.json"
LONGEST_PAUSE = 60.0
"""Seconds between two writes: an attempt that is killed has run for so much longer, at most, than is known."""
LAST_SECONDS = 10.0
"""How long the end of a host waits for the last write."""


class TimeLimit:
    """Whether a job has run for `Settings.max_run`. The leader uses it, from one thread.

    Args:
        identity: of the job, the same in all attempts; empty if it is not known, and each attempt counts alone.
    """

    def __init__(
        self, settings: Settings, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = settings.max_run
        self._uri = (settings.output_uri or settings.checkpoint_uri) if identity else ""
        self._identity = identity
        self._clock = clock
        self._before = 0.0
        """Seconds that earlier attempts have run, as far as they are known."""
        self._began: float | None = None
        self._over = threading.Event()
        self._completed = False
        self._thread = threading.Thread(target=self._keep, name="running-time", daemon=True)
        if self._uri:
            self._thread.start()

    def begin(self) -> None:
        """All hosts run from now on."""
        if self._began is None:
            self._began = self._clock()

    def report(self) -> FailureReport | None:
        """Why the job has to end; None while it may run."""
        if self._ran() < self._seconds:
            return None
        return FailureReport(
            FailureClass.TIME_LIMIT,
            f"max_run of {self._seconds:g} s is over",
            "Increase max_run, and submit the job again: it resumes from its last checkpoint.",
            exit_code=TIME_LIMIT_CODE,
            time=time.time(),
        )

    def close(self, *, completed: bool) -> None:
        """This attempt has ended."""
        self._completed = completed
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)

    def _ran(self) -> float:
        return self._before + (0.0 if self._began is None else self._clock() - self._began)

    def _keep(self) -> None:
        pause = min(LONGEST_PAUSE, max(1.0, self._seconds / 100))
        store, is_known = open_store(self._uri), False
        while True:
            try:
                with patience.using(patience.Patience(LAST_SECONDS)):
                    if not is_known:
                        self._before, is_known = self._read(store), True
                    if self._completed:
                        store.delete([KEY])
                    elif self._began is not None:
                        store.write(KEY, json.dumps({"job": self._identity, "ran": self._ran()}).encode())
            except CloudtrainError:  # it is away: nothing is known, and nothing is replaced
                pass
            if self._over.is_set():
                return
            self._over.wait(pause)

    def _read(self, store: Store) -> float:
        try:
            given = Fields(parse_json(store.read(KEY)))
            return given.number("ran", least=0) if given.text("job") == self._identity else 0.0
        except (NotFound, ValueError):
            return 0.0
