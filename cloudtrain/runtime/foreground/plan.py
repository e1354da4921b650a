"""Plans the ranks of a program in the foreground, with the working folder and the environment of the shell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.interfaces import interface_to
from cloudtrain.contract import RankSlot, cpu_count, gpu_count
from cloudtrain.contract.frameworks import (
    SHARED_PORTS,
    WorldPorts,
    framework_variables,
    hostfile,
    without_set,
)
from cloudtrain.contract.rank import HOROVODRUN, TORCHRUN
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.launchers.gpu_environment import cpu_variables
from cloudtrain.runtime.launchers.launch import LaunchPlan, RankStart
from cloudtrain.runtime.outer_variables import without_outer_mpi, without_outer_step
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.run_folder import LIBRARY, RANK_FILE

LOOPBACK = "127.0.0.1"
HOST = "localhost"


@dataclass(frozen=True)
class Program:
    """One of the programs of a run. Most runs have a single program."""

    ranks: int
    """The number of its ranks on all hosts."""
    python: str
    """The interpreter that runs `cloudtrain.runtime.rank`."""
    options: list[str]
    """Options for this interpreter, such as ``-u``."""
    arguments: list[str]
    """The arguments of `cloudtrain.runtime.rank`."""
    library: str = LIBRARY
    """The folder from which ``python`` imports cloudtrain."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables for its ranks, in addition to those of this process."""
    folder: str = ""
    """The working folder of its ranks; empty for that of this process."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command that starts a rank, without its arguments."""
        return (self.python, *self.options, f"{self.library}/{RANK_FILE}")

    def start(self, environment: Mapping[str, str]) -> RankStart:
        return RankStart(
            command=(*self.command, *self.arguments),
            arguments=tuple(self.arguments),
            environment=environment,
            cwd=Path(self.folder) if self.folder else Path.cwd(),
            signals_group=self.arguments[0] == "--",
        )


@dataclass(frozen=True)
class Order:
    """The ranks to run, from the command line of ``cloudtrain run``, which passes them to this process as JSON."""

    ranks: int
    """The number of ranks of this host."""
    programs: list[Program]
    """The programs in the order of their ranks: the first ranks run the first program, the next ones the second."""
    mpi: bool = False
    """Whether mpirun starts the ranks."""
    mpi_options: str = ""
    """Options for mpirun, as in ``custom_mpi_options``."""
    output: str = ""
    """The folder for the output of each rank; empty to keep no output."""
    verbose: bool = False

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Order:
        return cls(**{**content, "programs": [Program(**program) for program in content["programs"]]})

    def numbers(self, slots: Iterable[RankSlot]) -> list[int]:
        """The index of the program that each slot runs."""
        of_ranks = [number for number, program in enumerate(self.programs) for _ in range(program.ranks)]
        return [of_ranks[slot.rank] for slot in slots]


@dataclass(frozen=True)
class Place:
    """The place of this host's ranks among those of several hosts."""

    ranks: list[int]
    """The ranks of this host."""
    size: int
    """The number of ranks of all hosts."""
    host: int
    hosts: int
    master_addr: str
    master_port: int
    ports: dict[str, int]
    """The ports of `WorldPorts` on the host of rank 0."""

    def slots(self) -> tuple[RankSlot, ...]:
        """The slots of this host."""
        return tuple(
            RankSlot(rank, local, self.size, len(self.ranks), self.host, self.hosts)
            for local, rank in enumerate(self.ranks)
        )


@dataclass
class Prepared:
    """A launch plan, and the server that its ranks need, if any."""

    plan: LaunchPlan
    rendezvous: subprocess.Popen[bytes] | None = None
    """Horovod's rendezvous server."""


def alone(ranks: int) -> Place:
    """The place of the ranks if all of them are on this machine."""
    return Place(
        list(range(ranks)), ranks, 0, 1, LOOPBACK, free_port(), {name: free_port() for name in SHARED_PORTS}
    )


def prepare(order: Order, run: Path, environ: Mapping[str, str], place: Place) -> Prepared:
    """The launch plan for the ranks of this machine.

    Raises:
        PlatformError: there is no suitable mpirun, or the server of the real Horovod does not start, or would have to
            serve several hosts.
    """
    slots, main = place.slots(), order.programs[0]
    gpus, master = gpu_count(environ), place.master_addr
    own = without_outer_step(without_outer_mpi(environ))
    controller = _controller(order, own)
    if place.hosts > 1 and controller:
        raise PlatformError(
            "run does not start the server that the real Horovod needs on several hosts",
            hint="Submit a job: cloudtrain submit FILE --platform hosts --horovod",
        )
    numbers = order.numbers(slots)
    defaults = {**_interface_variables(master), **cpu_variables(place.size, gpus)}

    def environment_of(program: Program) -> dict[str, str]:
        environ = {**own, **program.variables}
        return _environment(order, program.library, environ, run, defaults, alias=not controller)

    starts = [program.start(environment_of(program)) for program in order.programs]
    environment = environment_of(replace(main, variables={}))
    ports = WorldPorts(place.ports["coordinator"], place.ports["tracker"], place.ports["agent"])
    frameworks = [
        without_set(
            framework_variables(slot, master, ports, gpus), {**own, **order.programs[number].variables}
        )
        for slot, number in zip(slots, numbers)
    ]
    places = [{**slot.environment(master, place.master_port), **slot.variables(HOROVODRUN)} for slot in slots]
    plan = LaunchPlan(
        slots=slots,
        command=starts[0].command,
        environment=environment,
        rank_environments=tuple({**place, **more} for place, more in zip(places, frameworks)),
        cwd=Path.cwd(),
        run=run,
        rank_arguments=tuple(main.arguments),
        signals_group=starts[0].signals_group,
        hostfile=hostfile((HOST,), order.ranks),
        starts=tuple(starts[number] for number in numbers) if len(starts) > 1 else (),
    )
    if order.mpi or controller == "mpi":
        return Prepared(
            replace(_by_mpirun(plan, order, starts, places[0]), agent_variables=tuple(frameworks))
        )
    if controller != "gloo":
        return Prepared(plan)
    from cloudtrain.runtime.launchers.horovod import horovod_environment, start_rendezvous

    rendezvous, server_port = start_rendezvous(main.python, [HOST], order.ranks, environment, loopback=True)
    server = (LOOPBACK, server_port)
    environments = [
        {**own_place, **horovod_environment(slot, HOST, server, "lo")}
        for slot, own_place in zip(slots, plan.rank_environments)
    ]
    return Prepared(replace(plan, rank_environments=tuple(environments)), rendezvous)


def _by_mpirun(
    plan: LaunchPlan, order: Order, starts: Sequence[RankStart], place: Mapping[str, str]
) -> LaunchPlan:
    """``plan``, changed so that mpirun starts the ranks and gives each its place.

    Args:
        starts: the start of each program's ranks.
        place: the place of rank 0, as variables.
    """
    from cloudtrain.runtime.launchers import mpirun  # few runs use it

    own = {name for names in (TORCHRUN, HOROVODRUN) for name in (names.rank, names.local_rank)}
    session = mpirun.session_folder(str(plan.run))
    environment = {
        **mpirun.environment(plan.slots[0], session, "lo", 1),
        **plan.environment,
        **{name: value for name, value in place.items() if name not in own},
    }
    found = mpirun.Mpirun.find(environment)
    shell = f"{plan.programs_folder}/{mpirun.REMOTE_SHELL}"
    programs = [
        mpirun.Program(program.ranks, program.command, start.variables_beside(plan.environment))
        for program, start in zip(order.programs, starts)
    ]
    command = found.command(
        plan.slots[0],
        programs[0].command,
        environment,
        order.mpi_options,
        remote_shell=shell,
        programs=programs,
    )
    return replace(
        plan,
        command=command,
        environment=environment,
        agent="mpirun",
        session=session,
        proxies_connect=found.is_mpich,
        programs={mpirun.REMOTE_SHELL: mpirun.remote_shell(str(plan.run))},
    )


def _controller(order: Order, environ: Mapping[str, str]) -> str:
    """The controller of the real Horovod, ``gloo`` or ``mpi``, if the program's interpreter has it; otherwise empty."""
    python = order.programs[0].python
    if python == sys.executable:
        more = environ.get("PYTHONPATH", "").split(os.pathsep)
        if not (find_spec("horovod") or PathFinder.find_spec("horovod", more)):
            return ""
    from cloudtrain.runtime.launchers.horovod import find_horovod

    return find_horovod(python, environ)


def _interface_variables(master: str) -> dict[str, str]:
    """The variables with the interface on which Gloo and NCCL reach ``master``."""
    interface = interface_to(master)
    if interface not in (name for _, name in socket.if_nameindex()):
        return {}
    return {f"{name}_SOCKET_IFNAME": interface for name in ("GLOO", "NCCL")}


def _environment(
    order: Order,
    library: str,
    environ: Mapping[str, str],
    run: Path,
    defaults: Mapping[str, str],
    *,
    alias: bool,
) -> dict[str, str]:
    paths = list(filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))
    installed = os.path.basename(library) in ("site-packages", "dist-packages")
    if not installed and library not in paths:
        paths.append(library)
    if alias:
        paths.insert(0, f"{library}/cloudtrain/alias")
    environment = {
        "PYTHONUNBUFFERED": "1",  # otherwise, the lines of a rank would arrive late and in bursts
        **defaults,
        **environ,
        "CLOUDTRAIN_RUN_DIR": str(run),
    }
    if order.ranks > 1:  # by default, libraries start one thread per processor in every rank
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // order.ranks)))
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
