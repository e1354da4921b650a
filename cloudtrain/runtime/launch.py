"""Starts the ranks of one host and tells when each has ended.

Ranks are started by this process itself (launchers ``single`` and ``processes``) or by an agent: ``torchrun``,
``mpirun`` on the leader, and on the other hosts the daemon that mpirun asks for. Either way every rank runs
`cloudtrain.runtime.rank`, so that all of them are seen alike.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cloudtrain.contract import PREEMPTED, FailureReport, RankSlot
from cloudtrain.observe import commits
from cloudtrain.runtime.diagnose import RankExit, diagnose_agent
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.run_folder import (
    PARENT_DEATH_PROGRAM,
    RankRecord,
    command_path,
    heartbeat_path,
    pipe_path,
    read_code,
    stacks_path,
    stopping_path,
)

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
    """A rank's whole command line; or the agent's; () where the agent is to be started by `Launch.start_agent`."""
    environment: Mapping[str, str]
    rank_environments: tuple[Mapping[str, str], ...]
    """What each rank gets beyond ``environment``; an agent sets it itself."""
    cwd: Path
    run: Path
    agent: str = ""
    """What starts the ranks, if not we: ``torchrun`` or ``mpirun``."""
    rank_arguments: tuple[str, ...] = ()
    """What ranks run that their agent does not tell: the arguments of `cloudtrain.runtime.rank`."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Scripts that the agent finds on its PATH, in `programs_folder`: name and content."""
    signals_group: bool = False
    """Whether SIGTERM goes to the rank's whole process group: a shell does not pass it on."""
    restarts: bool = False
    """Whether the agent may start ranks anew: a rank that is gone has ended only when the agent says so."""

    @property
    def programs_folder(self) -> Path:
        return self.run / "bin"


@dataclass
class Launch:
    """The running ranks of one host."""

    plan: LaunchPlan
    output: OutputMerger
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    exits: dict[int, RankExit] = field(default_factory=dict)
    """By global rank."""
    deaths: dict[int, float] = field(default_factory=dict)
    """By global rank: when its process was first seen to be gone."""
    signalled: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of process id and signal: a rank that was started anew is asked again."""
    _agent_output: BinaryIO = field(init=False)
    _killed: bool = False
    _session: str = ""
    """The temporary folder of mpirun or its daemon."""

    def start(self) -> None:
        """Raises OSError when the command cannot be started at all."""
        run = str(self.plan.run)
        for slot in self.plan.slots:
            self.output.add_rank(pipe_path(run, slot.local_rank), slot.rank)
            Path(heartbeat_path(run, slot.local_rank)).touch()
        if self.plan.agent:
            self._agent_output = self.output.add_launcher()
            self._write_what_agents_need()
            if self.plan.command:
                self.start_agent(self.plan.command)
        else:
            for slot, environment in zip(self.plan.slots, self.plan.rank_environments):
                # the rank takes its pipe itself; what goes wrong before that is heard too
                with open(pipe_path(run, slot.local_rank), "wb") as pipe:
                    self._spawn(self.plan.command, {**self.plan.environment, **environment}, pipe)
        self.output.start()

    def _write_what_agents_need(self) -> None:
        parts = (str(self.plan.cwd), *self.plan.rank_arguments)
        Path(command_path(str(self.plan.run))).write_bytes(os.fsencode("\0".join(parts)))
        self.plan.programs_folder.mkdir()
        for name, content in self.plan.programs.items():
            path = self.plan.programs_folder / name
            path.write_text(content)
            path.chmod(0o700)

    def start_agent(self, command: Sequence[str]) -> None:
        """Start what starts the ranks; called from the main thread, with whose end the agent ends too."""
        if self._killed:
            return
        environment = dict(self.plan.environment)
        if self.plan.programs:
            environment["PATH"] = os.pathsep.join([str(self.plan.programs_folder), environment["PATH"]])
        if self.plan.agent == "mpirun":
            # Its sockets: a short path, and nobody else's. It would name its folder by its process number, which a
            # container that is started again has again, and leave it there when it is killed.
            self._session = tempfile.mkdtemp(prefix="ct-", dir=environment.get("TMPDIR") or None)
            environment["TMPDIR"] = self._session
            command = (sys.executable, PARENT_DEATH_PROGRAM, *command)
        with self._agent_output as output:
            self._spawn(command, environment, output)

    def _spawn(
        self, command: Sequence[str], environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            cwd=self.plan.cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def poll(self) -> list[RankExit]:
        """The ranks that have ended since the last call."""
        new = []
        # the agent is asked first: when it has ended, all that is told of its ranks has been told
        agent_code = self.agent_code
        for slot in self.plan.slots:
            if slot.rank in self.exits:
                continue
            record = self.record(slot)
            if self.plan.agent:
                code = self._code_by_agent(slot, record, agent_code)
            else:
                code = self._process_code(slot, record)
            if code is not None:
                died_at = self.deaths.get(slot.rank, time.time())
                tail = self.output.tail(slot.rank) or self.output.tail(None)
                self.exits[slot.rank] = RankExit(slot.rank, code, died_at, record, tail)
                new.append(self.exits[slot.rank])
        return new

    def _process_code(self, slot: RankSlot, record: RankRecord | None) -> int | None:
        code = self.processes[slot.local_rank].poll()
        return _failed_but_lingers(record) if code is None else code

    def _code_by_agent(self, slot: RankSlot, record: RankRecord | None, agent_code: int | None) -> int | None:
        """The exit code of a rank that is not our child: what was told of it, else what it left."""
        if (
            not self.plan.restarts
            and record
            and slot.rank not in self.deaths
            and not process_lives(record.pid)
        ):
            self.deaths[slot.rank] = time.time()
        told = self._told(slot)
        if told:
            self.deaths.setdefault(slot.rank, told[1])
            return told[0]
        if self.plan.agent == "mpirun":
            return _failed_but_lingers(record)  # beside every rank somebody tells of it, whatever mpirun does
        if agent_code is not None:
            return agent_code
        if self.plan.restarts:
            return None
        if record is None or slot.rank not in self.deaths:
            return _failed_but_lingers(record)
        if time.time() - self.deaths[slot.rank] < VANISHED_SECONDS:
            return None
        # The agent is waiting for other ranks to end. It told us of the first one before it ended the rest.
        others_told = any(self._told(slot) for slot in self.plan.slots)
        return record.exit_code or (-signal.SIGTERM if others_told else -signal.SIGKILL)

    def _told(self, slot: RankSlot) -> tuple[int, float] | None:
        return read_code(str(self.plan.run), slot.local_rank)

    def record(self, slot: RankSlot) -> RankRecord | None:
        return RankRecord.read(str(self.plan.run), slot.local_rank)

    @property
    def agent_code(self) -> int | None:
        """The exit code of an agent that has ended."""
        return self.processes[0].poll() if self.plan.agent and self.processes else None

    def agent_report(self, host: str) -> FailureReport | None:
        """Where mpirun (its daemon) has ended, and nobody told of all of its ranks: how it ended."""
        code = self.agent_code
        if self.plan.agent != "mpirun" or code is None or len(self.exits) == len(self.plan.slots):
            return None
        program = "mpirun" if self.plan.command else "the daemon of mpirun"
        if self.begun and code >= 0 and not self.plan.command:
            code = 128 + signal.SIGTERM  # mpirun has ended it or is gone: an echo of what the leader reports
        return diagnose_agent(program, code, self.begun, self.output.tail(None), host)

    @property
    def running(self) -> bool:
        """Whether any process that was started here, or will be, still has something to do."""
        if self.plan.agent == "mpirun" and len(self.exits) == len(self.plan.slots):
            return (
                False  # the ranks' own ends count: mpirun may wait for ever for one that did not finalize MPI
            )
        if not self.processes:
            return not self._killed  # mpirun has not asked for its daemon yet
        return any(process.poll() is None for process in self.processes)

    @property
    def begun(self) -> bool:
        """Whether any rank has come as far as its script."""
        return any(self.record(slot) for slot in self.plan.slots)

    def preempted(self, *, gone: bool) -> bool:
        """Whether a script has ended because of a preemption; with ``gone`` its process too, which may still save."""
        records = [record for slot in self.plan.slots if (record := self.record(slot))]
        left = [record for record in records if record.exit_code == PREEMPTED]
        if gone:
            left = [record for record in left if not process_lives(record.pid)]
        return bool(left) or any(rank_exit.exit_code == PREEMPTED for rank_exit in self.exits.values())

    def commits(self) -> set[str]:
        """The commits of checkpoints that are under way here."""
        return {name for name, pid in commits(self.plan.run).items() if process_lives(pid)}

    def signal_ranks(self, number: int) -> None:
        """Send a signal to every rank that has begun and not ended, once: call again for ranks that begin later."""
        if number == signal.SIGTERM:
            Path(stopping_path(str(self.plan.run))).touch()
        for slot in self.plan.slots:
            record = self.record(slot)
            if record is None or slot.rank in self.exits or (record.pid, number) in self.signalled:
                continue
            self.signalled.add((record.pid, number))
            with contextlib.suppress(ProcessLookupError):
                if self.plan.signals_group and number == signal.SIGTERM:
                    os.killpg(record.pid, number)
                else:
                    os.kill(record.pid, number)

    def kill(self) -> None:
        """End everything at once: ranks with all that they started, and the agent. Nothing starts any more."""
        self._killed = True
        for slot in self.plan.slots:
            record = self.record(slot)
            # a process of this number that lives after the rank has ended is somebody else's
            if record is not None and not (slot.rank in self.exits and process_lives(record.pid)):
                _kill_group(record.pid)
        for process in self.processes:
            if process.poll() is None:
                _kill_group(process.pid)
            process.wait()

    def clean_up(self) -> None:
        """Remove what the agent has left; once nothing runs any more."""
        if self._session:
            shutil.rmtree(self._session, ignore_errors=True)

    def most_silent(self) -> tuple[int, float]:
        """The rank that still runs whose last sign of life is the oldest, and the seconds since then."""
        silence = {
            slot.rank: time.time() - os.stat(heartbeat_path(str(self.plan.run), slot.local_rank)).st_mtime
            for slot in self.plan.slots
            if slot.rank not in self.exits
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
    """The exit code of a rank whose script has failed but whose process does not end (a thread, a library).

    One that leaves because of a preemption may take as long as it is given: it is saving.
    """
    if (
        record is None
        or record.exit_code in (None, 0, PREEMPTED)
        or time.time() - record.time < LINGER_SECONDS
    ):
        return None
    return record.exit_code
