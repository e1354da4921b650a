"""Launches whose ranks an agent starts: ``torchrun``, ``mpirun`` or its daemon, or another project's launcher."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from cloudtrain._system.processes import signal_group
from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureReport, RankSlot
from cloudtrain.observe import steady
from cloudtrain.runtime.descendants import OrphanReaper
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.launchers.launch import Launch, LaunchPlan, process_lives, zombie_code
from cloudtrain.runtime.launchers.srun_rank import write_launch
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.parent_death import RUNTIME_PID
from cloudtrain.runtime.run_folder import (
    PARENT_DEATH_PROGRAM,
    RankRecord,
    read_code,
    write_command,
    write_variables,
)

VANISHED_SECONDS = 0.4
"""Seconds that an agent may take to report the exit code of a rank whose process has ended. Shorter than the time for
which the leader collects failures: a killed rank must not be reported after the ranks that failed because of it."""

COMMAND_SECONDS = 60.0
"""Seconds that another project's launcher may take to end after its last rank, before it is killed."""


class AgentLaunch(Launch):
    """The ranks of one host that an agent starts."""

    def __init__(self, plan: LaunchPlan, output: OutputMerger) -> None:
        super().__init__(plan, output)
        self._agent_output: BinaryIO
        self._gone: dict[int, float] = {}
        """By global rank: when its process was first found to have ended, on the clock of `time.monotonic`."""

    def _start_ranks(self) -> None:
        self._agent_output = self.output.add_launcher()
        self._write_files()
        if self.plan.command:
            self.start_agent(self.plan.command)

    def _write_files(self) -> None:
        write_command(str(self.plan.run), str(self.plan.cwd), self.plan.rank_arguments)
        for slot in self.plan.slots if self.plan.starts else ():
            start = self.plan.start_of(slot)
            write_command(str(self.plan.run), str(start.cwd), start.arguments, slot.local_rank)
        for slot, variables in zip(self.plan.slots, self.plan.agent_variables):
            write_variables(str(self.plan.run), slot.local_rank, variables)
        if self.plan.stored_command:
            environment = {**self.plan.environment, RUNTIME_PID: str(os.getpid())}
            write_launch(str(self.plan.run), self.plan.stored_command, environment)
        self.plan.programs_folder.mkdir()
        for name, content in self.plan.programs.items():
            path = self.plan.programs_folder / name
            path.write_text(content)
            path.chmod(0o700)

    def start_agent(self, command: Sequence[str]) -> None:
        """Start the agent. Call it in the main thread: the agent dies when the calling thread ends."""
        if self.killed_at is not None:
            return
        environment = dict(self.plan.environment)
        if self.plan.programs:
            environment["PATH"] = os.pathsep.join([str(self.plan.programs_folder), environment["PATH"]])
        with self._agent_output as output:
            self._spawn(self._tied(command), {**environment, **self._variables()}, output)

    def _tied(self, command: Sequence[str]) -> Sequence[str]:
        """The command that runs ``command`` in a process that ends with this one."""
        return (sys.executable, PARENT_DEATH_PROGRAM, *command)

    def _variables(self) -> dict[str, str]:
        """Additional environment variables of the agent."""
        return {}

    @property
    def agent_code(self) -> int | None:
        return self.processes[0].poll() if self.processes else None

    def _code(self, slot: RankSlot, record: RankRecord | None, agent_code: int | None) -> int | None:
        """The exit code that the agent has reported for a rank, or else the one that can be derived."""
        if (
            not self.plan.restarts
            and record
            and slot.rank not in self.deaths
            and not process_lives(record.pid)
        ):
            self.deaths[slot.rank] = steady.now()
            self._gone[slot.rank] = time.monotonic()
        reported = self._reported_code(slot)
        if reported:
            self.deaths.setdefault(slot.rank, reported[1])
            return reported[0]
        return self._unreported_code(slot, record, agent_code)

    def _unreported_code(
        self, slot: RankSlot, record: RankRecord | None, agent_code: int | None
    ) -> int | None:
        """The exit code of a rank that the agent has not reported (yet)."""
        if agent_code is not None:
            return agent_code
        if self.plan.restarts:
            return None
        if record is None or slot.rank not in self._gone:
            return self._failed_but_lingers(slot, record)
        if not self._has_vanished(slot):
            return None
        code = zombie_code(record.pid) if record.exit_code is None else record.exit_code
        if code is not None:
            return code or None  # after a success, the agent is only slow: it has the rank's exit status
        # The agent waits for other ranks to end. It reported the first failure before it ended the others.
        others_reported = any(self._reported_code(slot) for slot in self.plan.slots)
        return -signal.SIGTERM if others_reported else -SIGKILL

    def _has_vanished(self, slot: RankSlot) -> bool:
        """Whether the process of a rank has ended, and the agent has had enough time to report it."""
        gone = self._gone.get(slot.rank)
        return gone is not None and time.monotonic() - gone >= VANISHED_SECONDS

    def _reported_code(self, slot: RankSlot) -> tuple[int, float] | None:
        return read_code(str(self.plan.run), slot.local_rank)

    @property
    def _have_all_ended(self) -> bool:
        return len(self.exits) == len(self.plan.slots)


class TorchrunLaunch(AgentLaunch):
    """The ranks of one ``torchrun``, which itself ends with this process: see `torchrun_agent`."""

    def _tied(self, command: Sequence[str]) -> Sequence[str]:
        return command

    def report_without_ranks(self, rank_exit: RankExit, python: str, host: str) -> FailureReport | None:
        from cloudtrain.runtime.diagnose.ranks import diagnose_torchrun

        return diagnose_torchrun(rank_exit, python, host)


class MpirunLaunch(AgentLaunch):
    """The ranks of ``mpirun`` or, instead of it, ``srun``; on the other hosts, of the daemon that mpirun requested."""

    _session = ""
    """The folder for the files of mpirun or its daemon."""

    def start_agent(self, command: Sequence[str]) -> None:
        super().start_agent(command)
        if self.plan.hosts == 1 and self.processes:
            from cloudtrain.runtime.launchers.listening_ports import (
                close_ports,  # the other launchers do not need it
            )

            close_ports(self.processes[0].pid, to_all=not self.plan.proxies_connect)

    def _variables(self) -> dict[str, str]:
        # by default, mpirun puts its files into a folder named after its process id, which a restarted container
        # reuses, and does not remove them when it is killed
        if self.plan.session:
            os.makedirs(self.plan.session, exist_ok=True)
        temporary = self.plan.environment.get("TMPDIR") or None
        self._session = self.plan.session or tempfile.mkdtemp(prefix="ct-", dir=temporary)
        return {"TMPDIR": self._session}

    def _unreported_code(
        self, slot: RankSlot, record: RankRecord | None, agent_code: int | None
    ) -> int | None:
        # each rank's parent reports its exit code, even if mpirun dies
        return self._failed_but_lingers(slot, record)

    @property
    def running(self) -> bool:
        if self._have_all_ended:
            return False  # mpirun may wait forever for a rank that did not finalize MPI
        if not self.processes:
            return self.killed_at is None  # mpirun has not requested its daemon yet
        return super().running

    def agent_report(self, host: str, memory_kills: int = 0) -> FailureReport | None:
        code = self.agent_code
        if code is None or self._have_all_ended:
            return None
        program = "srun" if self.plan.stored_command else "mpirun"
        program = program if self.plan.command else f"the daemon of {program}"
        if self.scripts_started and code >= 0 and not self.plan.command:
            code = (
                128 + signal.SIGTERM
            )  # mpirun ended the daemon, or has ended: a consequence of the failure that the leader reports
        from cloudtrain.runtime.diagnose.ranks import diagnose_agent

        return diagnose_agent(program, code, self.scripts_started, self.output.tail(None), host)

    def clean_up(self) -> None:
        super().clean_up()
        if self._session:
            shutil.rmtree(self._session, ignore_errors=True)


class CommandLaunch(AgentLaunch):
    """The ranks of another project's launcher, whose daemons this process adopts."""

    def __init__(self, plan: LaunchPlan, output: OutputMerger) -> None:
        super().__init__(plan, output)
        self._reaper = OrphanReaper()
        self._ended_at = 0.0
        """When all ranks were first found to have ended, on the clock of `time.monotonic`."""

    def poll(self) -> list[RankExit]:
        self._reaper.reap({process.pid for process in self.processes})
        return super().poll()

    def _unreported_code(
        self, slot: RankSlot, record: RankRecord | None, agent_code: int | None
    ) -> int | None:
        if record is None:
            return agent_code if self.plan.serves else None
        if agent_code is not None:
            return record.exit_code  # None: the rank still runs without the agent, or was killed with it
        if record.exit_code == 0 and self._has_vanished(slot):
            return 0
        return super()._unreported_code(slot, record, None)

    @property
    def running(self) -> bool:
        if self._have_all_ended:
            self._ended_at = self._ended_at or time.monotonic()
            if time.monotonic() - self._ended_at > COMMAND_SECONDS:
                return False
        return super().running

    def agent_report(self, host: str, memory_kills: int = 0) -> FailureReport | None:
        code = self.agent_code
        if code is None:
            return None
        missing = [slot for slot in self.plan.slots if slot.rank not in self.exits]
        if any(rank_exit.exit_code for rank_exit in self.exits.values()) or not (code or missing):
            return None
        unstarted = [slot.rank for slot in missing if self.record(slot) is None]
        left = [slot.rank for slot in missing if slot.rank not in unstarted]
        first, second = (*self.plan.command, "")[:2]
        is_script = Path(first).name.startswith("python") and not second.startswith("-")
        program = Path(second if is_script else first).name
        from cloudtrain.runtime.diagnose.ranks import diagnose_command

        return diagnose_command(
            program,
            code,
            unstarted,
            left,
            self.scripts_started,
            self.output.tail(None),
            host,
            memory_kills=memory_kills,
        )

    def end_unstarted(self) -> None:
        if not self.plan.serves:  # an agent that serves may run programs that save something
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    signal_group(process.pid, signal.SIGTERM)


_LAUNCHES: dict[str, type[Launch]] = {
    "": Launch,
    "torchrun": TorchrunLaunch,
    "mpirun": MpirunLaunch,
    "agent": CommandLaunch,
}
"""The class for each `LaunchPlan.agent`."""


def make_launch(plan: LaunchPlan, output: OutputMerger) -> Launch:
    """The launch for a plan, not started yet."""
    return _LAUNCHES[plan.agent](plan, output)
