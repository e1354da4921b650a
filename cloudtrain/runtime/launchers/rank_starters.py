"""The ways to start the ranks of a host: the runtime, torchrun, mpirun or srun, or another project's launcher."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import RankSlot
from cloudtrain.contract.frameworks import WorldPorts
from cloudtrain.contract.rank import HOROVODRUN, TORCHRUN
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.horovod import HorovodChoice, horovod_environment
from cloudtrain.runtime.run_folder import PROGRAMS, RANK_FILE, STORED_COMMAND, TORCHRUN_FILE


@dataclass(frozen=True)
class RanksOfHost:
    """The ranks that this host is to start, by any `RankStarter`."""

    config: HostConfig
    python: str
    """The interpreter that has the job's requirements."""
    program_folders: list[str]
    """The folders with console scripts of packages that ``python`` can import."""
    master: tuple[str, int]
    """Address and port of rank 0."""
    ports: WorldPorts
    """The ports of the world's first host."""
    interface: str
    """The network interface for traffic between ranks."""
    horovod: HorovodChoice
    """The leader's choice."""
    environ: Mapping[str, str]
    """The environment of the runtime."""
    slots: tuple[RankSlot, ...]
    environment: dict[str, str]
    """The variables that all ranks have."""
    rank_environments: list[dict[str, str]]
    """The variables of each rank, including those that state its place."""
    place: frozenset[str]
    """The names of the variables that state a rank's place."""
    rank_arguments: tuple[str, ...]
    """The arguments of `cloudtrain.runtime.rank`: the entry point and its own."""

    @property
    def rank_command(self) -> tuple[str, str]:
        return (self.python, f"{self.config.library}/{RANK_FILE}")

    @property
    def is_python(self) -> bool:
        """Whether the entry point is a Python script or module."""
        return self.rank_arguments[0] != "--"


@dataclass(frozen=True)
class HostStart:
    """The command and environment that start the ranks: see the fields with these names in `launch.LaunchPlan`."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    programs: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    proxies_connect: bool = False
    stored_command: tuple[str, ...] = ()
    restarts: bool = False


class RankStarter(ABC):
    """A way to start the ranks of a host."""

    name = ""
    """The name of the program, as in `launch.LaunchPlan.agent`."""
    passes_variables = False
    """Whether each rank inherits its variables. Otherwise, it reads them from the run folder."""

    @abstractmethod
    def start(self, ranks: RanksOfHost) -> HostStart:
        """The command and environment of this host.

        Raises:
            InvalidJob: the program cannot start this entry point, or the options of the job are invalid.
            PlatformError: the program is not installed.
        """


class Runtime(RankStarter):
    """The runtime starts each rank."""

    passes_variables = True

    def start(self, ranks: RanksOfHost) -> HostStart:
        if ranks.horovod.controller == "gloo":
            rendezvous = (ranks.master[0], ranks.horovod.port)
            for slot, variables in zip(ranks.slots, ranks.rank_environments):
                host = ranks.config.host.current
                variables.update(horovod_environment(slot, host, rendezvous, ranks.interface))
        return HostStart((*ranks.rank_command, *ranks.rank_arguments), ranks.environment)


class Torchrun(RankStarter):
    """One ``torchrun`` on each host."""

    name = "torchrun"

    def start(self, ranks: RanksOfHost) -> HostStart:
        config, slot = ranks.config, ranks.slots[0]
        if not ranks.is_python:
            raise InvalidJob(
                f"torch_distributed starts Python scripts, not {config.entry_point}",
                hint='Use distribution={"processes": {}} for other programs.',
            )
        # after one rank has failed, the others have the job's grace period instead of torchrun's 30 s
        ranks.environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(config.settings.stop_grace)))
        address, port = ranks.master
        restarts = config.launcher.max_restarts
        command = (
            *(ranks.python, f"{config.library}/{TORCHRUN_FILE}"),
            # with underscores, the only spelling that PyTorch 1 accepts
            *(f"--nnodes={slot.host_count}", f"--nproc_per_node={slot.local_size}"),
            *(f"--node_rank={slot.host_rank}", f"--master_addr={address}", f"--master_port={port}"),
            f"--max_restarts={restarts}",
            "--monitor_interval=0.1",  # as in PyTorch 2; PyTorch 1 would notice the end of a rank after 5 s
            f"--log_dir={config.paths.run}/torchrun",  # by default, a folder in /tmp that survives a kill
            # stored, because torchrun would parse an argument of the script such as --rdzv as its own --rdzv-id
            *(ranks.rank_command[1], STORED_COMMAND),
        )
        return HostStart(command, ranks.environment, restarts=restarts > 0)


class Mpirun(RankStarter):
    """``mpirun`` on the first host; on the others, its daemons, whose command it sends later."""

    name = "mpirun"

    def start(self, ranks: RanksOfHost) -> HostStart:
        from cloudtrain.runtime.launchers import mpirun

        config, slot = ranks.config, ranks.slots[0]
        run = str(config.paths.run)
        session = mpirun.session_folder(run)
        defaults = mpirun.environment(slot, session, ranks.interface, config.settings.hosts_on_machine)
        environment = {**defaults, **ranks.environment, **_common(ranks.rank_environments[0])}
        if config.settings.srun:
            return self._srun(ranks, HostStart((), environment, session=session))
        start = HostStart((), environment, {mpirun.REMOTE_SHELL: mpirun.remote_shell(run)}, session)
        if not config.host_in_world.leads:
            return start
        found = mpirun.Mpirun.find(environment)
        shell = f"{config.paths.run.absolute()}/{PROGRAMS}/{mpirun.REMOTE_SHELL}"
        options = config.launcher.custom_mpi_options
        command = found.command(slot, ranks.rank_command, environment, options, remote_shell=shell)
        return replace(start, command=tuple(command), proxies_connect=found.is_mpich)

    def _srun(self, ranks: RanksOfHost, start: HostStart) -> HostStart:
        """Use Slurm's ``srun`` instead of ``mpirun``. Its ranks find the runtime of their host by the run folder."""
        from cloudtrain.runtime.launchers import mpirun

        config = ranks.config
        if config.host_in_world.leads:
            srun = mpirun.srun_command(
                dict(config.settings.srun), ranks.slots[0], ranks.environ, sys.executable
            )
            start = replace(start, command=tuple(srun))
        return replace(start, stored_command=ranks.rank_command)


class OtherLauncher(RankStarter):
    """Another project's launcher, once on each host."""

    name = "agent"
    passes_variables = True

    def start(self, ranks: RanksOfHost) -> HostStart:
        from cloudtrain.runtime.launchers.agent import agent_command

        config = ranks.config
        # remove variables of an outer job or the user, which ranks could not distinguish from the launcher's
        environment = {name: value for name, value in ranks.environment.items() if name not in ranks.place}
        masters = ranks.place.intersection(("MASTER_ADDR", "MASTER_PORT"))
        environment.update({name: ranks.rank_environments[0][name] for name in sorted(masters)})
        command = agent_command(
            config.launcher.agent_command,
            config.launcher.agent_preset,
            ranks.slots[0],
            config.host_in_world.hosts,
            ranks.master,
            ranks.ports,
            run=str(config.paths.run.absolute()),
            python=ranks.python,
            program_folders=ranks.program_folders,
            rank_program=ranks.rank_command[1],
            environment=environment,
            one_machine=ranks.interface == "lo",
        )
        return HostStart(tuple(command), environment)


def rank_starter(config: HostConfig, horovod: HorovodChoice) -> RankStarter:
    """The starter for the ranks of this job."""
    name = config.launcher.name
    if config.launcher.is_horovod and horovod.controller == "mpi":
        name = Mpirun.name
    starters: tuple[RankStarter, ...] = (Torchrun(), Mpirun(), OtherLauncher())
    return next((starter for starter in starters if starter.name == name), Runtime())


def _common(rank_environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that have the same value in all ranks of the host."""
    own = {name for names in (TORCHRUN, HOROVODRUN) for name in (names.rank, names.local_rank)}
    return {name: value for name, value in rank_environment.items() if name not in own}
