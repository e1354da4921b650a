"""Starts the ranks of one host and reports the exit code of each.

This process starts them itself (launchers ``single`` and ``processes``), or an agent does: see `agent_launches`. In
both cases, a rank runs `cloudtrain.runtime.rank` and is watched in the same way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import signature
from cloudtrain._system.processes import signal_group, stat_fields
from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import PREEMPTED, FailureReport, RankSlot
from cloudtrain.observe import commits, heartbeat, steady
from cloudtrain.runtime.descendants import KILLED_SECONDS
from cloudtrain.runtime.diagnose.rank_exit import LARGEST_OUTPUT, RankExit
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.parent_death import RUNTIME_PID
from cloudtrain.runtime.run_folder import (
    PARENT_DEATH_PROGRAM,
    PROGRAMS,
    RankRecord,
    heartbeat_path,
    hostfile_path,
    make_spares,
    pipe_path,
    record_path,
    stopping_path,
)

if TYPE_CHECKING:
    from cloudtrain.runtime.diagnose.stacks import RankProcess

LINGER_SECONDS = 2.0
"""Seconds that a rank may take to end after its script has failed."""


@dataclass(frozen=True)
class RankStart:
    """The command and environment of one rank. They differ between ranks that run different programs."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    """The arguments of `cloudtrain.runtime.rank`."""
    environment: Mapping[str, str]
    cwd: Path
    signals_group: bool

    def variables_beside(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables whose values differ from those in ``environment``."""
        return {name: value for name, value in self.environment.items() if environment.get(name) != value}


@dataclass(frozen=True)
class LaunchPlan:
    """The processes to start on this host: a command for each slot, or an agent that starts the ranks."""

    slots: tuple[RankSlot, ...]
    command: tuple[str, ...]
    """The command line of a rank or of the agent; () if `Launch.start_agent` starts the agent later."""
    environment: Mapping[str, str]
    rank_environments: tuple[Mapping[str, str], ...]
    """Additional variables of each rank. With an agent, the agent sets them."""
    cwd: Path
    run: Path
    agent: str = ""
    """The program that starts the ranks: ``torchrun``, ``mpirun``, ``agent`` for another project's launcher, or empty
    for the runtime itself."""
    rank_arguments: tuple[str, ...] = ()
    """The arguments of `cloudtrain.runtime.rank`, for ranks to which the agent does not pass them."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Scripts on the agent's PATH, in `programs_folder`: name and content."""
    signals_group: bool = False
    """Whether to send SIGTERM and SIGINT to the rank's whole process group, because a shell does not forward them."""
    session: str = ""
    """The folder for the files of mpirun and its daemons; empty for a temporary folder."""
    hosts: int = 1
    """The number of hosts in the world."""
    server: tuple[str, ...] = ()
    """The command line of a parameter server; () without one."""
    server_variables: Mapping[str, str] = field(default_factory=dict)
    hostfile: str = ""
    """The content of the hostfile, for launchers and libraries of other projects."""
    agent_variables: tuple[Mapping[str, str], ...] = ()
    """The variables of each rank that an agent does not set. The ranks read them from the run folder."""
    serves: bool = False
    """Whether this host's agent starts no rank, but serves the rank of the first host until that rank ends."""
    stored_command: tuple[str, ...] = ()
    """The command of ranks that do not descend from this process and read it from the run folder: see `srun_rank`."""
    proxies_connect: bool = False
    """Whether a proxy on the host of mpirun connects to it to start the ranks there, as MPICH's does."""
    starts: tuple[RankStart, ...] = ()
    """For each slot, if the ranks run different programs; () otherwise."""
    restarts: bool = False
    """Whether the agent may restart ranks. If so, a rank has ended only when the agent reports it."""

    @property
    def programs_folder(self) -> Path:
        return self.run / PROGRAMS

    def start_of(self, slot: RankSlot) -> RankStart:
        """The command and environment of a rank of this host."""
        if self.starts:
            return self.starts[slot.local_rank]
        return RankStart(self.command, self.rank_arguments, self.environment, self.cwd, self.signals_group)


@dataclass
class Launch:
    """The running ranks of one host, which this process starts."""

    plan: LaunchPlan
    output: OutputMerger
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    server: subprocess.Popen[bytes] | None = None
    exits: dict[int, RankExit] = field(default_factory=dict)
    """The exits of ranks, by global rank."""
    deaths: dict[int, float] = field(default_factory=dict)
    """By global rank, if an agent started it: the time of its death, in seconds since the epoch."""
    _failed: dict[int, float] = field(default_factory=dict)
    """By global rank: when its script was first found to have failed, on the clock of `time.monotonic`."""
    signalled: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of process id and signal, so that a restarted rank gets the signal too."""
    killed_at: float | None = None
    """When the ranks were first killed, on the clock of `time.monotonic`."""
    _records: dict[int, tuple[tuple[int, ...], RankRecord | None]] = field(default_factory=dict)
    """By local rank: the signature of the file, and the record read from it."""

    def start(self) -> None:
        """Raises OSError if the command cannot be started."""
        run = str(self.plan.run)
        Path(hostfile_path(run)).write_text(self.plan.hostfile)
        for slot in self.plan.slots:
            self.output.add_rank(pipe_path(run, slot.local_rank), slot.rank)
            heartbeat.create(heartbeat_path(run, slot.local_rank))
            make_spares(run, slot.local_rank)
        if self.plan.server:
            command = (sys.executable, PARENT_DEATH_PROGRAM, *self.plan.server)
            with self.output.add_launcher() as output:
                self.server = self._popen(
                    command, {**self.plan.environment, **self.plan.server_variables}, output
                )
        self._start_ranks()
        self.output.start()

    def _start_ranks(self) -> None:
        for slot, environment in zip(self.plan.slots, self.plan.rank_environments):
            # the rank opens its pipe itself; passing the pipe as its output also captures errors before that
            start = self.plan.start_of(slot)
            with open(pipe_path(str(self.plan.run), slot.local_rank), "wb") as pipe:
                self._spawn(start.command, {**start.environment, **environment}, pipe, start.cwd)

    def _spawn(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: BinaryIO,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        process = self._popen(command, environment, output, cwd)
        self.processes.append(process)
        return process

    def _popen(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: BinaryIO,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=cwd or self.plan.cwd,
            env={**environment, RUNTIME_PID: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def poll(self) -> list[RankExit]:
        """The ranks that have ended since the last call."""
        new = []
        # query the agent before the ranks: after it has ended, all exit codes that it reports have been written
        agent_code = self.agent_code
        for slot in self.plan.slots:
            if slot.rank in self.exits:
                continue
            record = self.record(slot)
            code = self._code(slot, record, agent_code)
            if code is not None:
                died_at = self.deaths.get(slot.rank, steady.now())
                tail = self.output.tail(slot.rank) or self.output.tail(None)
                output = "" if code in (0, 1) else self.output.end_of_log(slot.rank, LARGEST_OUTPUT)
                self.exits[slot.rank] = RankExit(slot.rank, code, died_at, record, tail, output)
                new.append(self.exits[slot.rank])
        return new

    def _code(self, slot: RankSlot, record: RankRecord | None, agent_code: int | None) -> int | None:
        """The exit code of a rank; None while it runs."""
        code = self.processes[slot.local_rank].poll()
        return self._failed_but_lingers(slot, record) if code is None else code

    def _failed_but_lingers(self, slot: RankSlot, record: RankRecord | None) -> int | None:
        """The exit code of a rank whose script has failed but whose process does not end (a thread, a library).

        A rank that exits because of a preemption may use its grace period: it may still be saving.
        """
        if record is None or record.exit_code in (None, 0, PREEMPTED):
            self._failed.pop(slot.rank, None)
            return None
        failed = self._failed.setdefault(slot.rank, time.monotonic())
        return record.exit_code if time.monotonic() - failed >= LINGER_SECONDS else None

    def record(self, slot: RankSlot) -> RankRecord | None:
        """The record of a rank; None if it has not written one yet. Reads the file only when it has changed."""
        folder, local = str(self.plan.run), slot.local_rank
        known = self._records.get(local)
        try:
            state = signature(os.stat(record_path(folder, local)))
            if known is None or known[0] != state:
                known = self._records[local] = (state, RankRecord.read(folder, local))
        except FileNotFoundError:
            return None
        except OSError:  # a shared folder does not respond; the next call tries again
            pass
        return known[1] if known else None

    @property
    def agent_code(self) -> int | None:
        """The exit code of an agent that has ended; None while it runs, or without one."""
        return None

    def agent_report(self, host: str, memory_kills: int = 0) -> FailureReport | None:
        """A failure report if the agent ended before all of its ranks; None otherwise."""
        return None

    def report_without_ranks(self, rank_exit: RankExit, python: str, host: str) -> FailureReport | None:
        """A failure report if ``python`` cannot run the agent; None otherwise."""
        return None

    def server_report(self, host: str) -> FailureReport | None:
        """A failure report if the parameter server ended before the ranks; None otherwise."""
        code = self.server.poll() if self.server else None
        if code is None or len(self.exits) == len(self.plan.slots):
            return None
        from cloudtrain.runtime.diagnose.ranks import diagnose_server

        return diagnose_server(code, self.output.tail(None), host)

    @property
    def completed(self) -> bool:
        """Whether all ranks have exited with 0, and no signal handler has ended a script early."""
        return len(self.exits) == len(self.plan.slots) and not any(
            rank_exit.exit_code or (rank_exit.record and rank_exit.record.left_on_signal)
            for rank_exit in self.exits.values()
        )

    @property
    def is_held(self) -> bool:
        """Whether a rank has not ended in time after SIGKILL, because the kernel holds it: stop waiting for it."""
        return self.killed_at is not None and time.monotonic() > self.killed_at + KILLED_SECONDS

    @property
    def running(self) -> bool:
        """Whether any process that was or will be started here is still needed."""
        return any(process.poll() is None for process in self.processes)

    @property
    def scripts_started(self) -> bool:
        """Whether any rank has reached its script."""
        return any(self.record(slot) for slot in self.plan.slots)

    def preempted(self, *, gone: bool) -> bool:
        """Whether a script has exited because of a preemption; with ``gone``, whether its process has ended too."""
        records = [record for slot in self.plan.slots if (record := self.record(slot))]
        left = [record for record in records if record.exit_code == PREEMPTED]
        if gone:
            left = [record for record in left if not process_lives(record.pid)]
        return bool(left) or any(rank_exit.exit_code == PREEMPTED for rank_exit in self.exits.values())

    def commits(self) -> set[str]:
        """The commits of checkpoints in progress on this host."""
        return {name for name, pid in commits(self.plan.run).items() if process_lives(pid)}

    def signal_ranks(self, number: int) -> None:
        """Send a signal once to every rank that has started and not ended. Call again for ranks that start later."""
        if number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(OSError):  # a full disk
                Path(stopping_path(str(self.plan.run))).touch()
        for slot in self.plan.slots:
            record = self.record(slot)
            if record is None or slot.rank in self.exits or (record.pid, number) in self.signalled:
                continue
            self.signalled.add((record.pid, number))
            with contextlib.suppress(ProcessLookupError):
                if self.plan.start_of(slot).signals_group and number in (signal.SIGTERM, signal.SIGINT):
                    signal_group(record.pid, number)
                else:
                    os.kill(record.pid, number)

    def end_unstarted(self) -> None:
        """End the ranks before any of them has reached its script, so that there is nothing to save."""
        self.kill()

    def kill(self) -> None:
        """Kill the ranks, everything that they started, and the agent. No process is started afterwards."""
        if self.killed_at is None:
            self.killed_at = time.monotonic()
        for slot in self.plan.slots:
            record = self.record(slot)
            # if the rank has ended, a living process with its id is a different one
            if record is not None and not (slot.rank in self.exits and process_lives(record.pid)):
                _kill_group(record.pid)
        started = [*self.processes, *([self.server] if self.server else [])]
        for process in started:
            if process.poll() is None:
                _kill_group(process.pid)
        deadline = self.killed_at + KILLED_SECONDS
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))

    def clean_up(self) -> None:
        """Remove files of the agent, and spare files, after all processes have ended."""
        with contextlib.suppress(OSError):
            for spare in self.plan.run.glob("*.spare-*"):
                spare.unlink(missing_ok=True)

    def rank_processes(self) -> list[RankProcess]:
        """The ranks that have started and not ended."""
        from cloudtrain.runtime.diagnose.stacks import RankProcess

        found = ((slot, self.record(slot)) for slot in self.plan.slots if slot.rank not in self.exits)
        return [RankProcess(slot.rank, slot.local_rank, record.pid) for slot, record in found if record]


def process_lives(pid: int) -> bool:
    """Whether a process exists and is not a zombie (proc(5))."""
    try:
        state = stat_fields(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self/stat").exists() and _exists(pid)
    return state not in "ZX"


def zombie_code(pid: int) -> int | None:
    """The exit code of a zombie: a process that has ended, but whose parent has not waited for it. Otherwise, None."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":
            return os.waitstatus_to_exitcode(int(fields[49]))
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal_group(pid, SIGKILL)
