"""Ends a job that has run for too long, is lost repeatedly, or fails twice in the same way.

Used for jobs without a supervisor, which consist only of pods.

Only the time in which all hosts run counts, not the time in which one waits for a node. An attempt counts as lost
unless it ends in another way, and only if it has saved no checkpoint.

The record is stored next to the job's outputs, or else its checkpoints, with an identity that only this job has, so
that another job with its name begins at zero. If a job stores nothing, each attempt is counted by itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from typing import Callable

from cloudtrain.checkpoint.saved import RUNNING_TIME, saved_files
from cloudtrain.contract import FailureClass, FailureReport, Settings
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.errors import CloudtrainError, NotFound
from cloudtrain.observe import steady
from cloudtrain.storage import Store, open_store, retry_policy

LONGEST_PAUSE = 60.0
"""The most seconds between two writes, and so the most running time of a killed attempt that is not recorded."""
UNKNOWN_STEP = -1
LAST_SECONDS = 10.0
"""How long a host that ends waits for the last write."""


class Limits:
    """Checks whether a job has run for `Settings.max_run`, or was lost more often than `Settings.max_preemptions`.

    The leader uses this from one thread.

    Args:
        identity: the job's identity in all attempts; if empty, it is unknown, and each attempt is counted by itself.
    """

    def __init__(
        self, settings: Settings, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = settings.max_run or math.inf
        terms = Fields(parse_json(settings.cost_terms.encode()) if settings.cost_terms else {})
        is_cap = (
            terms.text("cap", "")
            and settings.max_run > terms.number("cap_seconds", 0.0) - terms.number("reserve", 0.0) - 1
        )  # whole seconds
        self._limit = f"the {terms.text('cap', '')} is reached" if is_cap else ""
        self._most = settings.max_preemptions if settings.max_preemptions >= 0 else math.inf
        self._checkpoints = settings.checkpoint_uri
        self._uri = (settings.output_uri or settings.checkpoint_uri) if identity else ""
        self._identity = identity
        self._clock = clock
        self._before = 0.0
        """The seconds that earlier attempts have run, as far as they were recorded."""
        self._lost = 0
        """The number of attempts directly before this one that were lost without a new checkpoint."""
        self._saved = ""
        """A hash of the checkpoints at the beginning of this attempt; empty if they are unknown."""
        self._cause: tuple[str, int] | None = None
        """The cause of the last failure before this attempt, if it would recur, and the step before it."""
        self._ended: tuple[str, int] | None = None
        """The cause of this attempt's failure, and the step before it."""
        self._began: float | None = None
        self._completed = self._failed = self._is_over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="limits", daemon=True)
        if self._uri:
            self._thread.start()

    def begin(self) -> None:
        """Begin to count the time, because all hosts run."""
        if self._began is None:
            self._began = self._clock()
            self._wake.set()

    def report(self) -> FailureReport | None:
        """Why the job has to end; None while it may run."""
        if self._ran() >= self._seconds:
            return FailureReport(
                FailureClass.TIME_LIMIT,
                self._limit or f"max_run of {self._seconds:g} s is over",
                f"Raise {'the cap' if self._limit else 'max_run'}, and submit the job again: it resumes from its last "
                "checkpoint.",
                exit_code=FINAL_CODE,
                time=steady.now(),
            )
        if self._lost > self._most:
            return FailureReport(
                FailureClass.PREEMPTED,
                f"hosts were lost {self._lost} times in a row, and no attempt saved a checkpoint: the next one would "
                "get no further",
                "Save checkpoints more often, to checkpoint_s3_uri, or choose nodes that are not taken away. For a "
                "script that saves elsewhere, raise platform_options.max_preemptions.",
                exit_code=FINAL_CODE,
                time=steady.now(),
            )
        return None

    def close(
        self, *, completed: bool, failed: bool = False, cause: str = "", step: int | None = None
    ) -> bool:
        """Record the end of this attempt. Returns whether the last failure had the same cause, after the same step.

        Args:
            failed: whether the attempt failed through a fault of the script, so that a restart is a retry.
            cause: see `recurrence.cause_of`.
            step: the last step that was reported.
        """
        if failed:  # keep the cause across preemptions, so that the same failure is recognised
            self._ended = (cause, UNKNOWN_STEP if step is None else step)
        self._completed, self._failed, self._is_over = completed, failed, True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)
        return bool(cause) and self._ended == self._cause

    def _ran(self) -> float:
        return self._before + (0.0 if self._began is None else self._clock() - self._began)

    def _keep(self) -> None:
        pause = min(LONGEST_PAUSE, max(1.0, self._seconds / 100))
        store, is_known, written = open_store(self._uri), False, ""
        while True:
            is_over = self._is_over
            try:
                with retry_policy.using(retry_policy.Patience(LAST_SECONDS)):
                    if not is_known:
                        self._recall(store)
                        is_known = True
                    if self._completed:
                        store.delete([RUNNING_TIME])
                    elif self._began is not None and (text := self._record()) != written:
                        store.write(RUNNING_TIME, text.encode())
                        written = text
            except CloudtrainError:  # the storage is unavailable: nothing is read, and nothing is replaced
                pass
            if is_over:
                return
            self._wake.wait(pause)
            self._wake.clear()

    def _record(self) -> str:
        cause, step = self._ended or self._cause or ("", UNKNOWN_STEP)
        return json.dumps(
            {
                "cause": cause,
                "step": step,
                "job": self._identity,
                "ran": 0.0 if math.isinf(self._seconds) else self._ran(),
                "lost": -1 if self._failed else self._lost,
                "saved": self._saved,
            }
        )

    def _recall(self, store: Store) -> None:
        """Read the record of the earlier attempts."""
        found = saved_files(self._checkpoints) if self._checkpoints else frozenset()
        saved = "" if found is None else hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
        try:
            given = Fields(parse_json(store.read(RUNNING_TIME)))
            if given.text("job") == self._identity:
                self._before = given.number("ran", least=0)
                self._cause = given.text("cause", ""), given.integer("step", UNKNOWN_STEP, least=UNKNOWN_STEP)
                before, lost = given.text("saved", ""), given.integer("lost", -1, least=-1)
                if not saved or not before:  # unknown checkpoints: the attempt is not counted
                    self._lost, saved = max(lost, 0), saved or before
                elif saved == before:
                    self._lost = lost + 1
        except (NotFound, ValueError):
            pass
        self._saved = saved
