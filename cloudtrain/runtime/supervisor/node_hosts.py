"""The hosts of a job on the nodes of a cluster, each behind a node program (`node`)."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.interfaces import is_loopback
from cloudtrain._system.signals import SIGKILL, linux_number
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.request_body import request_environment
from cloudtrain.runtime.diagnose.first_cause import with_memory_kill
from cloudtrain.runtime.output import write_all
from cloudtrain.runtime.start.allocation import expand_nodelist
from cloudtrain.runtime.start.container_files import check_shared, needed_mounts, pulled, shared_files
from cloudtrain.runtime.start.host_link import HostLink
from cloudtrain.runtime.start.messages import Exit, Leader, Message, NodeJob, Signal
from cloudtrain.runtime.start.node_container import Container
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts, RunningHost

IMAGE = "image"
"""The name of the file with the image that the first node has pulled."""
KILL_SECONDS = 5.0
"""How long the node programs may take to end after their runtimes were killed."""


class NodePrograms:
    """The node programs of a job, which one command has started on all nodes. A thread reads what they send.

    Args:
        command: starts the node programs, and passes its input to all of them. For example, ``srun``.
        log: the descriptor of the job's log. It is duplicated.
        noise: see `FrameReader`.
    """

    def __init__(self, command: Sequence[str], job: NodeJob, log: int, noise: tuple[bytes, ...] = ()) -> None:
        self._job = job
        self._log = os.dup(log)
        self._exits: dict[int, int] = {}
        self._kill_at: float | None = None
        self._abandoned: dict[int, float] = {}
        """When runtimes count as killed, even if their nodes do not answer."""
        self._link = HostLink(
            command,
            self._take,
            self._write,
            lambda _why: os.close(self._log),
            noise=noise,
            errors=subprocess.STDOUT,
        )
        self._link.start(job.to_line())

    def exit_code(self, number: int) -> int | None:
        """The exit code of a runtime, negative for a signal; None while it runs."""
        if time.monotonic() > self._abandoned.get(number, float("inf")):
            self._exits.setdefault(number, -SIGKILL)
        code = self._exits.get(number)
        if code is not None:
            return code
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._link.kill()
        if not self._link.is_read:
            return None
        found = self._link.process.poll()
        if found is None or number in self._exits:
            return self._exits.get(number)
        return -SIGKILL if self._kill_at is not None else found or 1

    def has_reported(self, number: int) -> bool:
        """Whether the program of a node has reported the end of its runtime."""
        return number in self._exits

    def has_lost(self, number: int) -> bool:
        """Whether the scheduler has taken a node out of the job."""
        for listed in self._link.reader.lost_nodes:
            with contextlib.suppress(ValueError):
                if self._job.names[number] in expand_nodelist(listed):
                    return True
        return False

    @property
    def is_cancelled(self) -> bool:
        """Whether someone has cancelled the step of the programs."""
        return self._link.reader.is_cancelled

    @property
    def code(self) -> int | None:
        """The exit code of the command that started the programs; None while it runs."""
        return self._link.process.poll()

    def memory_kill(self) -> str:
        """The scheduler's line about a process that was killed for its use of memory; empty if there is none.

        Prefers a line that names a node. It may arrive only at the end of the step.
        """
        if self._all_reported:
            self._link.join(KILL_SECONDS)
        lines = self._link.reader.memory_kills
        return next((line for line in lines if self.node_in(line)), lines[0] if lines else "")

    def node_in(self, line: str) -> str:
        """The node that a line names; empty if it names none."""
        words = re.findall(r"[\w.-]+", line)
        return next(
            (name for name in self._job.names if any(word in (name, f"slurmstepd-{name}") for word in words)),
            "",
        )

    def send_signal(self, number: int) -> None:
        """Send a signal to all runtimes."""
        if number == SIGKILL:
            if self._kill_at is not None:
                return
            self._kill_at = time.monotonic() + KILL_SECONDS
        self._link.send(Signal(linux_number(number)))

    def send_to(self, host: int, number: int) -> None:
        """Send a signal to one runtime."""
        if number == SIGKILL:
            self._abandoned.setdefault(host, time.monotonic() + KILL_SECONDS)
        self._link.send(Signal(linux_number(number), host))

    def close(self) -> None:
        """End the command if it still runs. Its nodes have ended, or do not answer."""
        self._link.close(KILL_SECONDS if self._all_reported else 0)
        self._link.join(KILL_SECONDS)

    @property
    def _all_reported(self) -> bool:
        return len(self._exits) == len(self._job.names)

    def _take(self, number: int, message: Message) -> None:
        if isinstance(message, Exit):
            self._exits.setdefault(number, message.code)
        elif isinstance(message, Leader):
            self._link.send(message)
        elif isinstance(message, Signal):  # the supervisor ends the job
            os.kill(os.getpid(), signal.SIGHUP if message.number == signal.SIGHUP else signal.SIGINT)

    def _write(self, output: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk
            write_all(self._log, output)


class NodeHost:
    """One host, as a `RunningHost`."""

    def __init__(self, programs: NodePrograms, number: int, *, is_spare: bool) -> None:
        self._programs = programs
        self._number = number
        self._is_spare = is_spare

    def poll(self) -> int | None:
        code = self._programs.exit_code(self._number)
        if code is None and self._is_spare and self._programs.has_lost(self._number):
            return -SIGKILL  # the leader detects the loss of hosts with a place
        return code

    def send_signal(self, number: int) -> None:
        if self._is_spare:
            self._programs.send_to(self._number, number)
        elif self._number == 0:  # the command forwards the signal to all nodes
            self._programs.send_signal(number)

    def abandon(self) -> None:
        self._programs.send_to(self._number, SIGKILL)

    def lost(self, name: str) -> FailureReport | None:
        line = self._programs.memory_kill()
        if line:
            host = self._programs.node_in(line) or name
            return with_memory_kill(FailureReport.host_lost(host, "", time.time()), line)
        if self._programs.has_reported(self._number):
            return None
        if self._programs.is_cancelled:
            return FailureReport(
                FailureClass.KILLED,
                "someone cancelled the step of the job in Slurm, and not the job: scancel JOB.STEP",
                "The user who cancelled it, or the administrators of the cluster, may know the reason. "
                "Submit the job again: it resumes from its last checkpoint.",
                exit_code=128 + SIGKILL,
                time=time.time(),
            )
        why = "its node did not report the end of its runtime"
        if self._programs.has_lost(self._number):
            why = "the scheduler has lost its node"
        return FailureReport.host_lost(name, f"{why}: see job.log", time.time())


class NodeHosts(FolderHosts):
    """The hosts of a job on nodes that share its folder.

    Args:
        names: the nodes in rank order, by names that all of them can resolve.
        secrets: the variables that the request does not contain.
    """

    interface = "lo"
    """A placeholder: each node writes its own interface."""
    end_seconds = 60.0
    look_seconds = 2.0
    """Rare, because all jobs of the cluster share the file system. Output and exit codes arrive without a look."""
    noise: tuple[bytes, ...] = ()
    """Lines of `command` that do not go into the log."""
    _lost_spares: tuple[str, ...] = ()
    """Spare nodes that are no longer in the job: a step that requested one would not start."""

    def __init__(self, folder: JobFolder, names: Sequence[str], secrets: Mapping[str, str]) -> None:
        super().__init__(folder, names)
        self._secrets = dict(secrets)
        self._programs: NodePrograms | None = None

    def assign(self, left_out: Sequence[str], dropped: Sequence[str]) -> None:
        super().assign((*left_out, *self._lost_spares), dropped)

    def report(self, name: str) -> FailureReport | None:
        found = super().report(name)
        is_killed = found and found.signal == SIGKILL
        line = self._programs.memory_kill() if is_killed and self._programs else ""
        return with_memory_kill(found, line) if found and line else found

    @property
    def storage_environment(self) -> Mapping[str, str]:
        return {**super().storage_environment, **self._secrets}

    @abstractmethod
    def command(self) -> list[str]:
        """The command that starts the node program on every node."""

    def longest_grace(self) -> float:
        """The longest grace of the ranks that the scheduler allows, in seconds."""
        return math.inf

    def prepare(self) -> None:
        for name in (*self.names, *self.spares):  # remove links that lost nodes have left
            run = self._folder.host(name).base / "run"
            if run.is_symlink():
                run.unlink()
        super().prepare()

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        if runtime := self._request.get("bundled_runtime"):
            check_shared(Path(runtime))
        programs = self._programs = NodePrograms(self.command(), self._job(attempt), log, self.noise)
        count, everyone = len(self.names), [*self.names, *self.spares]
        return self._with_places(
            {
                name: NodeHost(programs, number, is_spare=number >= count)
                for number, name in enumerate(everyone)
            }
        )

    def finish(self, *, failed: bool) -> None:
        """End the programs. The runtimes have uploaded the outputs themselves."""
        if self._programs:
            self._programs.close()
            everyone = [*self.names, *self.spares]
            lost = [name for name in self.spares if self._programs.has_lost(everyone.index(name))]
            self._lost_spares = (*self._lost_spares, *lost)
            self._programs = None
        (self._folder.path / IMAGE).unlink(missing_ok=True)

    def _job(self, attempt: int) -> NodeJob:
        one_machine = len(self.names) > 1 and all(map(is_loopback, self.names))
        settings = self._attempt_settings(attempt)
        local = self._request.get(
            "node_folder", ""
        )  # removed after each attempt, with the path of the memory
        settings = replace(
            settings,
            stop_grace=min(settings.stop_grace, self.longest_grace()),
            master_addr=self.names[0] if len(self.names) > 1 else "127.0.0.1",
            hosts_on_machine=len(self.names) if one_machine else 1,
            restarts_here=settings.restarts_here and not self._request.get("container") and not local,
        )
        return NodeJob(
            names=[*self.names, *self.spares],
            spares=len(self.spares),
            environment={**request_environment(self._request), **self._secrets},
            settings=settings.to_environ(),
            interface=self._request.get("network_interface", "auto"),
            node_folder=local,
            container=self._container(),
            mounts=needed_mounts(self._request) if self._request.get("container") else [],
            shared=shared_files(self._request) if self._request.get("container") else [],
            runtime=self._request.get("bundled_runtime", ""),
            srun=self._request.get("launcher_srun", ""),
        )

    def _container(self) -> dict[str, Any]:
        """The container of the request, with an image that all nodes can use. Raises PlatformError."""
        container = Container.from_body(self._request)
        if container is None:
            return {}
        return pulled(container, self._folder.path / IMAGE, os.environ).to_body()
