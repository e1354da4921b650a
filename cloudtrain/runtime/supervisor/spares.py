"""The runtimes of spare hosts during one attempt: they wait, and end with it. Lost hosts may come back as such."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Callable

from cloudtrain._system.signals import SIGKILL
from cloudtrain.runtime.diagnose.first_cause import lost_report
from cloudtrain.runtime.supervisor.hosts import Hosts, RunningHost

END_SECONDS, KILL_SECONDS = 10.0, 5.0
"""How long they may take to end, and after they were killed."""
POLL_SECONDS = 0.02
LOST_SECONDS, RECLAIMED_SECONDS = 10.0, 180.0
"""After this time, a host that was lost, or taken back, is asked whether it is there again: it may be taken away only
minutes after the notice."""
ASK_SECONDS = 30.0
"""Between two questions."""


class SpareHosts:
    """The spare hosts of ``hosts``, in one attempt after the other."""

    def __init__(self, hosts: Hosts, warn: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._hosts = hosts
        self._warn = warn
        self._clock = clock
        self._lost: set[str] = set()
        self._ask_at: dict[str, float] = {}
        """When hosts that were lost are asked whether they are there again."""
        self._asked: set[str] = set()
        """Those that have come back, or may still do so. Each may once."""
        self.free: Sequence[str] = ()
        """Those that could take a place when the last attempt ended."""

    def begin(self) -> None:
        self.free = ()
        self._lost.clear()

    def look(self) -> None:
        """Warn of a spare host that can no longer take a place. The job continues without it."""
        for name, runtime in self._hosts.waiting.items():
            code = runtime.poll()
            if code is not None and name not in self._lost:
                self._lost.add(name)
                report = self._hosts.report(name) or runtime.lost(name) or lost_report(name, code)
                self._warn(f"the spare host {name} cannot take the place of another: {report.message}")
                self.expect((name,), LOST_SECONDS)

    def expect(self, names: Sequence[str], seconds: float) -> None:
        """These hosts were lost. From some seconds on, `come_back` asks for each that has not been lost before."""
        for name in names:
            if name not in self._asked:
                self._asked.add(name)
                self._ask_at[name] = self._clock() + seconds

    def come_back(self) -> list[str]:
        """The hosts that were lost, can be reached again, and wait as spare ones from now on."""
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
        """End their runtimes: the next attempt starts new ones, with a place or without."""
        free, waiting = self._hosts.free_spares, self._hosts.waiting
        running = self._end_by(signal.SIGTERM, END_SECONDS)
        # one that does not end is paused, or was lost without a sign
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
