"""A real Slurm of several nodes on this machine, ready in about a second, without root, munge or systemd.

The nodes are named after loopback addresses, 127.0.0.2 and up, so that their names resolve. Commands of Slurm reach the
cluster by the variable SLURM_CONF: several clusters run side by side. No process outlives the tests: see `daemons`.
"""

from __future__ import annotations

import getpass
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from daemons import Daemons
from slurm_accounting import Accounting
from slurm_programs import DAEMONS, find_programs, program

UP = ("idle", "alloc", "mix", "comp")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")
"""Slurm checks that a GPU is a character device, and a different one than the others."""

FINAL = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
         "TIMEOUT")  # fmt: skip


class SlurmFailed(Exception):
    """A command or a daemon of Slurm failed; the message holds what it said."""


@dataclass(frozen=True)
class Configuration:
    """The differences between clusters. Equal configurations share one cluster."""

    nodes: int = 2
    cpus: int = 8
    """Per node; they need not exist."""
    gpus: int = 2
    """Per node: character devices. Jobs find their indexes in CUDA_VISIBLE_DEVICES."""
    gpu_type: str = ""
    partitions: tuple[str, ...] = ("main Default=YES MaxTime=60",)
    """``NAME OPTION=VALUE ...`` of each; every partition has all nodes unless it has ``Nodes=``."""
    lines: tuple[str, ...] = ()
    """Further lines of slurm.conf. The last value of an option wins."""
    accounting: bool = False
    """With slurmdbd and MariaDB: ``sacct`` works."""
    name: str = "test"
    """ClusterName. Equal clusters with different names run side by side."""
    before: tuple[str, ...] = ()
    """The command that starts the daemons of the nodes, and so their jobs, such as ``strace``."""


PREEMPTION = (
    "PreemptType=preempt/partition_prio",
    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,preempt_youngest_first",
)


def with_preemption(mode: str, *, grace: int = 0, nodes: int = 2) -> Configuration:
    """Jobs in the partition ``urgent`` take the nodes of those in ``main``: ``mode`` is CANCEL or REQUEUE.

    ``grace``: seconds from SIGTERM to SIGKILL.
    """
    return Configuration(
        nodes=nodes,
        partitions=(
            f"main Default=YES MaxTime=60 PriorityTier=1 PreemptMode={mode} GraceTime={grace}",
            "urgent MaxTime=60 PriorityTier=10 PreemptMode=off",
        ),
        lines=(*PREEMPTION, f"PreemptMode={mode}"),
    )


class SlurmCluster:
    """A running cluster. Use it as a context manager.

    Raises:
        SlurmMissing: at the start, if a program is not installed.
        SlurmFailed: at the start, if the cluster does not come up.
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.configuration = configuration or Configuration()
        self.node_names = [f"127.0.0.{number + 2}" for number in range(self.configuration.nodes)]
        self._stack = ExitStack()
        self._down: set[str] = set()
        self._forgotten = 0
        """The number of the last job before the last `reset`."""

    def __enter__(self) -> SlurmCluster:
        find_programs(accounting=self.configuration.accounting)
        for attempt in range(3):
            try:
                return self._start()
            except SlurmFailed as error:  # another process may have taken one of the ports
                self._stack.close()
                if attempt == 2 or "already in use" not in str(error):
                    raise
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> SlurmCluster:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.daemons = self._stack.enter_context(Daemons(self.folder))
        self.conf = self.folder / "slurm.conf"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        self.env["SLURM_CONF"] = str(self.conf)
        (self.folder / "bin").mkdir()
        for name in DAEMONS:  # Slurm's daemons look at their own names
            (self.folder / "bin" / name).symlink_to(program(name))
        ports = free_ports(self.configuration.nodes + 3)
        accounting = None
        if self.configuration.accounting:
            accounting = Accounting(self.daemons, self.env, ports[-2:])
        self._write_configuration(ports, accounting)
        if accounting:
            accounting.start()
        self.start_controller()
        for node in self.node_names:
            self.start_node(node)
        self.wait_for_nodes()
        return self

    def _write_configuration(self, ports: Sequence[int], accounting: Accounting | None) -> None:
        wanted, folder = self.configuration, self.folder
        user, host = getpass.getuser(), socket.gethostname().partition(".")[0]
        for name in ("state", *(f"{kind}-{node}" for node in self.node_names for kind in ("spool", "tmp"))):
            (folder / name).mkdir()
        gpus = f"gpu:{wanted.gpu_type}:{wanted.gpus}" if wanted.gpu_type else f"gpu:{wanted.gpus}"
        resources = f"CPUs={wanted.cpus} RealMemory=4000" + (f" Gres={gpus}" if wanted.gpus else "")
        nodes = [
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} {resources}"
            for name, port in zip(self.node_names, ports[1:], strict=False)
        ]
        partitions = [f"PartitionName={line}" for line in wanted.partitions]
        partitions = [line if " Nodes=" in line else f"{line} Nodes=ALL" for line in partitions]
        lines = [
            f"ClusterName={wanted.name}",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"TmpFS={folder}/tmp-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            *BASE,
            *(accounting.lines if accounting else ()),
            *nodes,
            *partitions,
            *wanted.lines,
        ]
        self.conf.write_text("\n".join(lines) + "\n")
        kind = f" Type={wanted.gpu_type}" if wanted.gpu_type else ""
        devices = ",".join(DEVICES[: wanted.gpus])
        (folder / "gres.conf").write_text(f"Name=gpu{kind} File={devices}\n" if wanted.gpus else "")

    # Daemons.

    def start_controller(self) -> None:
        self.daemons.start("slurmctld", [f"{self.folder}/bin/slurmctld", "-D"], self.env)

    def stop_controller(self) -> None:
        """The controller is away: commands of Slurm get no answer. Running jobs run on."""
        self.daemons.stop("slurmctld")

    def start_node(self, node: str) -> None:
        command = [f"{self.folder}/bin/slurmd", "-D", "-N", node, "-d", f"{self.folder}/bin/slurmstepd"]
        self.daemons.start(f"slurmd-{node}", [*self.configuration.before, *command], self.env)
        self._down.discard(node)

    def kill_node(self, node: str) -> None:
        """Kill the node's slurmd, as a crash does. Its jobs run on until Slurm notices, after SlurmdTimeout."""
        self._down.add(node)
        self.daemons.stop(f"slurmd-{node}", signal.SIGKILL)

    def set_down(self, node: str, reason: str = "test") -> None:
        """Slurm ends the jobs of the node with NODE_FAIL immediately, and starts no others there."""
        self._down.add(node)
        self("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def wait_for_nodes(self, patience: float = 90) -> None:
        """Wait until all nodes are up.

        Raises:
            SlurmFailed: they are not after ``patience`` seconds; the message holds the logs.
        """
        deadline = time.monotonic() + patience
        while True:
            answer = self.run("sinfo", "-h", "-N", "-o", "%N %t")
            up = {line.split()[0] for line in answer.stdout.splitlines() if line.split()[1] in UP}
            if up == set(self.node_names):
                return
            dead = [log for log in self.daemons.names if not self.daemons.is_alive(log)]
            if dead or time.monotonic() > deadline:
                said = "\n".join(self.daemons.log(name)[-2000:] for name in dead or self.daemons.names)
                raise SlurmFailed(f"the cluster is not up: {answer.stdout}{answer.stderr}\n{said}")
            time.sleep(0.05)

    def small_disk(self, megabytes: int) -> Path:
        """A new file system in the folder of the cluster, which is unmounted with the cluster.

        Raises:
            PermissionError: mounting needs root.
        """
        path = Path(tempfile.mkdtemp(prefix="disk-", dir=self.folder))
        options = f"size={megabytes}m,mode=700"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PermissionError(done.stderr)
        return path

    # Commands.

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, by its name, or any other."""
        return subprocess.run(
            command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def __call__(self, *command: str) -> str:
        """The output of a command.

        Raises:
            SlurmFailed: it failed.
        """
        done = self.run(*command)
        if done.returncode:
            raise SlurmFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        """Submit the lines of a shell script; the number of the job."""
        command = ["sbatch", "--parsable", f"--output={self.folder}/log/job-%j", *options]
        text = f"#!/bin/sh\n{script}\n"
        done = subprocess.run(
            command, env=self.env, input=text, capture_output=True, text=True, cwd=self.folder
        )
        if done.returncode:
            raise SlurmFailed(f"sbatch: {done.stderr}")
        return int(done.stdout.partition(";")[0])

    def output(self, number: int) -> str:
        """The output of a job of `submit` so far."""
        path = self.folder / "log" / f"job-{number}"
        return path.read_text() if path.exists() else ""

    def state(self, number: int) -> str:
        """PENDING, RUNNING, COMPLETED and so on."""
        for word in self("scontrol", "show", "job", str(number)).split():
            if word.startswith("JobState="):
                return word.partition("=")[2]
        raise SlurmFailed(f"there is no job {number}")

    def jobs(self) -> dict[int, str]:
        """The states of the jobs since the last `reset`. Slurm remembers those that have ended for five minutes."""
        lines = self("squeue", "-h", "-a", "-t", "all", "-o", "%A %T").splitlines()
        found = {int(line.split()[0]): line.split()[1] for line in lines}
        return {number: state for number, state in found.items() if number > self._forgotten}

    def wait(self, number: int, *states: str, patience: float = 60) -> str:
        """Wait until a job is in one of ``states``, or has ended; its state then."""
        deadline = time.monotonic() + patience
        while (state := self.state(number)) not in (*states, *FINAL):
            if time.monotonic() > deadline:
                raise SlurmFailed(f"job {number} is still {state} after {patience} s")
            time.sleep(0.1)
        return state

    def expire(self, number: int, seconds: int = 1) -> None:
        """Let the job's time limit be over in ``seconds``. Slurm looks every 30 s: the job ends with TIMEOUT then."""
        self("scontrol", "update", f"jobid={number}", f"EndTime=now+{seconds}")

    def reset(self) -> None:
        """Cancel all jobs, and bring all daemons and nodes back."""
        if not self.daemons.is_alive("slurmctld"):
            self.start_controller()
        for node in self.node_names:
            if not self.daemons.is_alive(f"slurmd-{node}"):
                self.start_node(node)
                self._down.add(node)
        deadline = time.monotonic() + 90
        while self.run("scontrol", "ping").returncode and time.monotonic() < deadline:
            time.sleep(0.1)
        left = self("squeue", "-h", "-a", "-o", "%A").split()
        if left:
            self.run("scancel", *left)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = self("squeue", "-h", "-a", "-o", "%A").split()
        for node in self._down:
            self.run("scontrol", "update", f"nodename={node}", "state=resume")
        self._down.clear()
        self.wait_for_nodes()
        self._forgotten = max(self.jobs(), default=self._forgotten)


BASE = (
    "AuthType=auth/none",
    "CredType=cred/none",
    "AuthInfo=cred_expire=5",  # else a requeued job waits for two minutes
    "MailProg=/bin/true",
    "ProctrackType=proctrack/linuxproc",  # cgroups need root
    "TaskPlugin=task/none",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core",
    "JobAcctGatherType=jobacct_gather/none",
    "ReturnToService=2",
    "SlurmdTimeout=10",
    "KillWait=15",  # so long has a batch step after SIGTERM to record the end of its job
    "SlurmdParameters=config_overrides",
    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
    "GresTypes=gpu",
    "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",  # listen on the loopback interface only
)


def free_ports(count: int) -> list[int]:
    """Unused ports, below those that the kernel hands out by itself."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.SystemRandom().randrange(10_000, 32_000)
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("", port))
            except OSError:
                continue
            ports.append(port)
        return ports
