"""Rounds of bad weather between two linked hosts: outages of the network, hosts and ranks that are killed or paused.

There is no supervisor here. A job that has failed is restarted, as a scheduler would do it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from host_network import Network
from hosts_job import HostsJob, Launch
from weather_faults import command_of, processes_of
from weather_figures import Figures
from weather_training import SCRIPT, STEPS, Journal, value_at

HOST_TIMEOUT = 9.0
JOIN_TIMEOUT = 20.0
SHORT_OUTAGE = (0.2, 4.0)
"""Outages that do no harm."""
LONG_OUTAGE = (12.0, 14.0)
"""Outages after which each host has lost the other."""
CALM_SECONDS = (2.5, 4.0)
"""The time between two faults: hosts that meet for a moment only between two outages may lose each other."""
MOST_FAULTS = 6
STARTS = 30
END_SECONDS = 90.0
ONE_RANK = Launch({"sagemaker_processes_enabled": True, "sagemaker_processes_per_host": 1})


def play_links(folder: Path, seed: int, seconds: float, figures: Figures) -> None:
    """Play rounds for ``seconds``. Then the last job continues without faults. Raises host_network.NetworkError."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        place = folder / str(number)
        place.mkdir()
        with Network(2, place) as network:
            _LinkRound(network, place, f"links, seed {seed}, round {number}", figures, end).play()


class _LinkRound:
    def __init__(self, network: Network, folder: Path, where: str, figures: Figures, end: float) -> None:
        self._network = network
        self._folder = folder
        self._where = where
        self._draw = random.Random(where)
        self._figures = figures
        self._end = end
        """The monotonic time from which on there are no more faults."""
        self._journal = folder / "journal"

    def play(self) -> None:
        job = HostsJob(
            self._network.machines,
            self._folder,
            SCRIPT,
            ONE_RANK,
            arguments=["--journal", str(self._journal)],
            environment={
                "CLOUDTRAIN_HOST_TIMEOUT": str(HOST_TIMEOUT),
                "CLOUDTRAIN_JOIN_TIMEOUT": str(JOIN_TIMEOUT),
            },
        )
        try:
            for _ in range(STARTS):
                codes = self._spoil(job)
                if codes == [0, 0]:
                    break
                self._figures.ends["failed, and restarted"] += 1
                job.start()
            else:
                self._figures.wrong.append(f"{self._where}: it did not complete in {STARTS} starts")
                return
            self._figures.ends["Completed"] += 1
            value = job.parts[0].paths.model / "value"
            if value.read_text() != value_at(STEPS):
                self._figures.wrong.append(f"{self._where}: the model is not that of the last step")
        finally:
            job.kill()
        journal = Journal.read(self._journal)
        journal.judge(self._where, self._figures)
        shared = self._look_for_leaks(job)
        if shared:
            self._figures.leaked.append(f"{self._where}: {shared}")

    def _spoil(self, job: HostsJob) -> list[int]:
        """Let faults happen to one start of the job, and return the exit codes of the hosts."""
        applied: list[str] = []
        fatal = False
        for _ in range(self._draw.randrange(1, MOST_FAULTS + 1)):
            time.sleep(self._draw.uniform(*CALM_SECONDS))
            if fatal or time.monotonic() > self._end or not all(part.program.running for part in job.parts):
                break
            name, fatal, apply = self._draw_fault(job)
            applied.append(name)
            self._figures.faults[name] += 1
            with apply():
                pass
        try:
            codes = job.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._figures.wrong.append(
                f"{self._where}: it hangs after {', '.join(applied)}\n{job.output()[-600:]}"
            )
            job.kill()
            return [-1, -1]
        if codes != [0, 0] and not fatal:
            self._figures.wrong.append(
                f"{self._where}: {codes} after {', '.join(applied)}\n{job.output()[-600:]}"
            )
        if (
            fatal and 0 in codes and codes != [0, 0] and applied[-1] != "kill machine"
        ):  # which may come last of all
            self._figures.wrong.append(f"{self._where}: one host succeeded after {', '.join(applied)}")
        return codes

    def _draw_fault(
        self, job: HostsJob
    ) -> tuple[str, bool, Callable[[], contextlib.AbstractContextManager[None]]]:
        """A fault: its name, whether the job has to fail of it, and what applies it."""
        part = self._draw.choice(job.parts)
        short, long = self._draw.uniform(*SHORT_OUTAGE), self._draw.uniform(*LONG_OUTAGE)
        mark = str(part.paths.base).encode()

        @contextlib.contextmanager
        def unplugged(seconds: float) -> Iterator[None]:
            part.machine.unplug()
            time.sleep(seconds)
            part.machine.plug()
            yield

        @contextlib.contextmanager
        def signalled(program: str, first: int, seconds: float = 0.0) -> Iterator[None]:
            pids = [pid for pid in processes_of(mark) if program in command_of(pid)]
            for number in (first, signal.SIGCONT)[: 2 if seconds else 1]:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(seconds)
            yield

        @contextlib.contextmanager
        def killed() -> Iterator[None]:
            part.program.kill()
            yield

        return self._draw.choices(
            [
                ("link down", False, lambda: unplugged(short)),
                ("link down for longer than host_timeout", True, lambda: unplugged(long)),
                ("pause runtime", False, lambda: signalled("cloudtrain.runtime", signal.SIGSTOP, short)),
                ("kill runtime", True, lambda: signalled("cloudtrain.runtime", signal.SIGKILL)),
                ("kill rank", True, lambda: signalled("rank.py", signal.SIGKILL)),
                ("kill machine", True, killed),
            ],
            [6, 1, 2, 1, 1, 1],
        )[0]

    def _look_for_leaks(self, job: HostsJob) -> list[str]:
        marks = [str(part.paths.base).encode() for part in job.parts]
        return [command_of(pid) for mark in marks for pid in processes_of(mark)]
