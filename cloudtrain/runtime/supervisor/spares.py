"""The runtimes of spare hosts, which wait during one attempt and end with it. Lost hosts may rejoin as spare hosts."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Callable

from cloudtrain._system.signals import SIGKILL
from cloudtrain.runtime.diagnose.first_cause import lost_report
from cloudtrain.runtime.supervisor.hosts import Hosts, RunningHost

END_SECONDS, KILL_SECONDS = 10.0, 5.0
"""How long the runtimes may take to end after SIGTERM, and after SIGKILL."""
POLL_SECONDS = 0.02
LOST_SECONDS, RECLAIMED_SECONDS = 10.0, 180.0
"""How long after it was lost, or taken back, a host is first checked for whether it can be reached. A host that is
taken back may disappear only minutes after the notice."""
ASK_SECONDS = 30.0
"""Seconds between two checks of a host."""


class SpareHosts:
    """The spare hosts of ``hosts``, across all attempts."""

    def __init__(self, hosts: Hosts, warn: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._hosts = hosts
        self._warn = warn
        self._clock = clock
        self._lost: set[str] = set()
        self._ask_at: dict[str, float] = {}
        """When to check next whether each lost host can be reached."""
        self._asked: set[str] = set()
        """The lost hosts that have rejoined, or may still do so. Each may rejoin once."""
        self.free: Sequence[str] = ()
        """The spare hosts that could take a place when the last attempt ended."""

    def begin(self) -> None:
        self.free = ()
        self._lost.clear()

    def look(self) -> None:
        """Warn about each spare host that can no longer take a place. The job continues without it."""
        for name, runtime in self._hosts.waiting.items():
            code = runtime.poll()
            if code is not None and name not in self._lost:
                self._lost.add(name)
                report = self._hosts.report(name) or runtime.lost(name) or lost_report(name, code)
                self._warn(f"the spare host {name} cannot take the place of another: {report.message}")
                self.expect((name,), LOST_SECONDS)

    def expect(self, names: Sequence[str], seconds: float) -> None:
        """Let `come_back` check the lost hosts ``names`` after ``seconds``, except those that were lost before."""
        for name in names:
            if name not in self._asked:
                self._asked.add(name)
                self._ask_at[name] = self._clock() + seconds

    def come_back(self) -> list[str]:
        """Let lost hosts that can be reached rejoin as spare hosts. Returns their names."""
        back = []
        for name in [name for name, at in self._ask_at.items() if at <= self._clock()]:
            waits = self._hosts.rejoin(name)
            if waits:
                del self._ask_at[name]
                self._lost.discard(name)
                back.append(name)
            elif waits is not None:
                self._ask_at[name] = self._clock() + ASK_SECONDS
        return back

    def end(self) -> None:
        """End the runtimes of the spare hosts. The next attempt starts new ones, with or without a place."""
        free, waiting = self._hosts.free_spares, self._hosts.waiting
        running = self._end_by(signal.SIGTERM, END_SECONDS)
        # a runtime that does not end is paused, or its loss was not noticed
        self.free = [name for name in free if name not in waiting or waiting[name] not in running]
        if running:
            self._end_by(SIGKILL, KILL_SECONDS)

    def _end_by(self, number: int, seconds: float) -> list[RunningHost]:
        """Send a signal. Returns the runtimes that have not ended after some seconds."""
        running, deadline = self._running(), self._clock() + seconds
        for runtime in running:
            runtime.send_signal(number)
        while running and self._clock() < deadline:
            time.sleep(POLL_SECONDS)
            running = self._running()
        return running

    def _running(self) -> list[RunningHost]:
        return [runtime for runtime in self._hosts.waiting.values() if runtime.poll() is None]
