"""Starts the ranks of one host and tells when each has ended.

Ranks are started by this process itself (launchers ``single`` and ``processes``) or by an agent
(``torchrun``). Either way every rank runs `cloudtrain.runtime.rank`, so that all of them are seen alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.diagnose import Ending
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.record import RankRecord, heartbeat_path, pipe_path, stacks_path

VANISHED_SECONDS = 0.4
"""How long an agent may take to say how a rank ended that is gone. Shorter than the time in which the leader gathers
failures: a rank that was killed must not be reported after those that ended because of it."""

LINGER_SECONDS = 2.0
"""How long a rank whose script has failed may take to end."""


@dataclass(frozen=True)
class LaunchPlan:
    """What to start on this host: one command for all slots, or an agent that starts the ranks."""

    slots: tuple[RankSlot, ...]
    command: tuple[str, ...]
    """A rank's whole command line; or the agent's, where ``agent`` is true."""
    environment: Mapping[str, str]
    rank_environments: tuple[Mapping[str, str], ...]
    """What each rank gets beyond ``environment``; an agent sets it itself."""
    cwd: Path
    run: Path
    agent: bool = False
    signals_group: bool = False
    """Whether SIGTERM goes to the rank's whole process group: a shell does not pass it on."""

    @property
    def agent_report(self) -> Path:
        """Where the agent leaves the exit codes of ranks that failed: ``{local rank: code}``."""
        return self.run / "agent.json"


@dataclass
class Launch:
    """The running ranks of one host."""

    plan: LaunchPlan
    output: OutputMerger
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    endings: dict[int, Ending] = field(default_factory=dict)
    """By global rank."""
    deaths: dict[int, float] = field(default_factory=dict)
    """By global rank: when its process was first seen to be gone."""
    signalled: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of rank and signal."""

    def start(self) -> None:
        """Raises OSError when the command cannot be started at all."""
        run = str(self.plan.run)
        for slot in self.plan.slots:
            self.output.add_rank(pipe_path(run, slot.local_rank), slot.rank)
            Path(heartbeat_path(run, slot.local_rank)).touch()
        if self.plan.agent:
            agent = self._spawn(self.plan.environment, subprocess.PIPE)
            assert agent.stdout is not None
            self.output.add_launcher(agent.stdout.fileno())
        else:
            for slot, environment in zip(self.plan.slots, self.plan.rank_environments):
                # the rank takes its pipe itself; what goes wrong before that is heard too
                with open(pipe_path(run, slot.local_rank), "wb") as pipe:
                    self._spawn({**self.plan.environment, **environment}, pipe)
        self.output.start()

    def _spawn(self, environment: Mapping[str, str], output: int | BinaryIO) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.plan.command,
            cwd=self.plan.cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def poll(self) -> list[Ending]:
        """The ranks that have ended since the last call."""
        new = []
        # the agent is asked first: when it has ended, its report is complete
        agent_code = self.processes[0].poll() if self.plan.agent else None
        reported = _read_codes(self.plan.agent_report) if self.plan.agent else {}
        for slot in self.plan.slots:
            if slot.rank in self.endings:
                continue
            record = self.record(slot)
            if self.plan.agent:
                code = self._agent_code(slot, record, agent_code, reported)
            else:
                code = self._process_code(slot, record)
            if code is not None:
                died_at = self.deaths.get(slot.rank, time.time())
                tail = self.output.tail(slot.rank) or self.output.tail(None)
                self.endings[slot.rank] = Ending(slot.rank, code, died_at, record, tail)
                new.append(self.endings[slot.rank])
        return new

    def _process_code(self, slot: RankSlot, record: RankRecord | None) -> int | None:
        code = self.processes[slot.local_rank].poll()
        return _failed_but_lingers(record) if code is None else code

    def _agent_code(
        self, slot: RankSlot, record: RankRecord | None, agent_code: int | None, reported: Mapping[int, int]
    ) -> int | None:
        """The exit code of a rank that is not our child: its agent's word, else what it left."""
        if record is not None and slot.rank not in self.deaths and not process_lives(record.pid):
            self.deaths[slot.rank] = time.time()
        if slot.local_rank in reported:
            return reported[slot.local_rank]
        if agent_code is not None:
            return agent_code
        if record is None or slot.rank not in self.deaths:
            return _failed_but_lingers(record)
        if time.time() - self.deaths[slot.rank] < VANISHED_SECONDS:
            return None
        # The agent is waiting for other ranks to end. It told us of the first one before it ended the rest.
        return record.exit_code or (-signal.SIGTERM if reported else -signal.SIGKILL)

    def record(self, slot: RankSlot) -> RankRecord | None:
        return RankRecord.read(str(self.plan.run), slot.local_rank)

    @property
    def running(self) -> bool:
        """Whether any process that was started here still runs."""
        return any(process.poll() is None for process in self.processes)

    @property
    def begun(self) -> bool:
        """Whether any rank has come as far as its script."""
        return any(self.record(slot) for slot in self.plan.slots)

    def signal_ranks(self, number: int) -> None:
        """Send a signal to every rank that has begun and not ended, once: call again for ranks that begin later."""
        for slot in self.plan.slots:
            record = self.record(slot)
            if record is None or slot.rank in self.endings or (slot.rank, number) in self.signalled:
                continue
            self.signalled.add((slot.rank, number))
            with contextlib.suppress(ProcessLookupError):
                if self.plan.signals_group and number == signal.SIGTERM:
                    os.killpg(record.pid, number)
                else:
                    os.kill(record.pid, number)

    def kill(self) -> None:
        """End everything at once: ranks with all that they started, and the agent."""
        for slot in self.plan.slots:
            record = self.record(slot)
            # a process of this number that lives after the rank has ended is somebody else's
            if record is not None and not (slot.rank in self.endings and process_lives(record.pid)):
                _kill_group(record.pid)
        for process in self.processes:
            if process.poll() is None:
                _kill_group(process.pid)
            process.wait()

    def most_silent(self) -> tuple[int, float]:
        """The rank that still runs whose last sign of life is the oldest, and the seconds since then."""
        silence = {
            slot.rank: time.time() - os.stat(heartbeat_path(str(self.plan.run), slot.local_rank)).st_mtime
            for slot in self.plan.slots
            if slot.rank not in self.endings
        }
        rank = max(silence, key=lambda rank: silence[rank], default=0)
        return rank, silence.get(rank, 0.0)

    def stacks(self) -> str:
        """Have every rank dump its Python stacks, and collect them."""
        self.signal_ranks(signal.SIGQUIT)
        time.sleep(0.5)  # faulthandler writes within the signal handler, but the rank must be scheduled
        parts = []
        for slot in self.plan.slots:
            path = Path(stacks_path(str(self.plan.run), slot.local_rank))
            text = path.read_text(errors="backslashreplace") if path.exists() else ""
            parts.append(f"rank {slot.rank}:\n{text.strip() or '(no Python stack: it does not answer)'}\n")
        return "\n".join(parts)


def process_lives(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not waited for does not (a zombie, proc(5))."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self/stat").exists() and _answers(pid)
    return state not in "ZX"


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _failed_but_lingers(record: RankRecord | None) -> int | None:
    """The exit code of a rank whose script has failed but whose process does not end (a thread, a library)."""
    if record is None or not record.exit_code or time.time() - record.time < LINGER_SECONDS:
        return None
    return record.exit_code


def _read_codes(path: Path) -> dict[int, int]:
    try:
        return {int(local): int(code) for local, code in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
