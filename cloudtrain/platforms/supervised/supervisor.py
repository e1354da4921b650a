"""The supervisor of one job, which runs close to the job's folder and hosts.

It starts one runtime for each host, waits for them, starts them again after a failure or a preemption if the job allows
it, and records the outcome. Where a scheduler has to give the job other hosts after a preemption, it leaves the next
attempt to another supervisor: see `continuation`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from dataclasses import asdict, replace
from typing import Any

from cloudtrain._system.signals import SIGKILL, handle, unblock
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.observe import EventLog, goodput_of
from cloudtrain.platforms.common.request_body import request_settings
from cloudtrain.platforms.supervised.budgets import PREEMPTIONS, RETRIES
from cloudtrain.platforms.supervised.continuation import Continuation
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.host_events import HostEvents
from cloudtrain.platforms.supervised.hosts import Hosts, RunningHost
from cloudtrain.platforms.supervised.launcher import PREEMPT
from cloudtrain.platforms.supervised.record import STOPPED_BY_USER, JobRecord, lost_late
from cloudtrain.runtime.upload_failure import UPLOAD_SECONDS
from cloudtrain.storage import patience
from cloudtrain.storage.reserve import is_full

POLL_SECONDS = 0.02

LOOK_SECONDS = 0.1
"""How often the supervisor looks into the job's folder, and shows there that it is alive."""

FULL_BELOW = 1_000_000
"""Free bytes below which a disk may have been full: the end of a job frees some."""

LAST_UPLOAD_SECONDS = 60.0
"""How long uploads may continue after the grace of a stop or of ``max_run``."""

INTERRUPTED = 128 + signal.SIGTERM
SIGNAL = "ended by a signal from outside"
PREEMPTED = "preempted"
LOST = "the first host was lost, and the scheduler starts the job again"

CRASH_SECONDS = 3.0
"""How long the other hosts may take to notice that a host has crashed."""

NOT_WORTH_A_RETRY = (
    FailureClass.SYNTAX_ERROR,
    FailureClass.IMPORT_ERROR,
    FailureClass.REQUIREMENTS,
    FailureClass.MISSING_DATA,
    FailureClass.GPU_SETUP,
    FailureClass.UPLOAD,
)
"""Failures that would happen again, or after which the training is complete."""


class Supervisor:
    """One job from its first attempt to its outcome."""

    def __init__(self, folder: JobFolder, hosts: Hosts, continuation: Continuation | None = None) -> None:
        self._folder = folder
        self._hosts = hosts
        self._continuation = continuation
        folder.reserve.keep()
        self._request = folder.read_request()
        settings = request_settings(self._request)
        self._stop_grace, self._host_timeout = settings.stop_grace, settings.host_timeout
        self._events = EventLog(folder.events, "supervisor")
        self._host_events = HostEvents(folder, self._events, hosts.names, uploads=hosts.upload)
        self._record: JobRecord = folder.read_record()
        self._runtimes: dict[str, RunningHost] = {}
        self._signalled = False
        self._preempted = False
        """Whether this attempt was preempted."""
        self._ended_by = ""
        """Why the job has to end early."""
        self._kill_at: float | None = None
        self._run_by = self._upload_until = self._cut_at = float("inf")
        self._resumed = time.monotonic()
        """When this submission began to run."""
        self._not_continued: PlatformError | None = None
        """Why the scheduler does not start the next attempt, although there is one left."""
        patience.default.warn = self._warn
        self._killed = False
        """Whether the runtimes did not end in time, and were killed for that."""
        self._crashed: FailureReport | None = None
        """The first host whose runtime ended without a report."""
        self._crashed_at = 0.0
        self._lost_late: dict[str, FailureReport] = {}
        """The hosts that were lost after this attempt was asked to end, which does not fail the job."""
        self._leader_failed_at: float | None = None
        self._looked_at = 0.0

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        handle(PREEMPT, self._on_preemption)
        unblock((signal.SIGTERM,))  # see zipapp_main
