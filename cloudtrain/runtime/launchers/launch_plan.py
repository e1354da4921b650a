"""The command and the environment that start the ranks of one host."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import (
    RankSlot,
    cpu_count,
    gpu_count,
    script_environment,
)
from cloudtrain.contract.frameworks import HOSTFILE, WorldPorts, hostfile
from cloudtrain.contract.processors import neuron_core_count
from cloudtrain.contract.rank import HOROVODRUN, TORCHRUN
from cloudtrain.contract.source import START_BYTES, is_executable, is_program
from cloudtrain.contract.trackers import RUN_ID, without_empty
from cloudtrain.errors import InvalidJob, NotFound
from cloudtrain.observe.progress import VARIABLE as EVENTS_FILE
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers import mpirun
from cloudtrain.runtime.launchers.agent import agent_command
from cloudtrain.runtime.launchers.gpu_environment import compatibility_folder, cpu_variables, efa_variables
from cloudtrain.runtime.launchers.horovod import horovod_environment
from cloudtrain.runtime.launchers.horovod_choice import HorovodChoice
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.launchers.outer_step import outer_step, without_outer_step
from cloudtrain.runtime.launchers.rank_environments import (
    framework_environments,
    rank_environments,
    server_config,
    tracker_environments,
)
from cloudtrain.runtime.launchers.srun import srun_command
from cloudtrain.runtime.run_folder import (
    AGENT_COMMAND,
    PARAMETER_SERVER_FILE,
    PROGRAMS,
    RANK_FILE,
    SCRIPT_PYTHONPATH,
    STORED_COMMAND,
    TORCHRUN_FILE,
    hostfile_path,
)

TIMELINE = "timeline/timeline.json"
"""Where the ranks of a job record their timelines, below ``output/data/``."""
LONGEST_VARIABLE = 128 * 1024
"""The longest variable that Linux passes to a process, in bytes, including the final zero (MAX_ARG_STRLEN)."""

NO_PORTS = WorldPorts()


def make_launch_plan(
    config: HostConfig,
    python: str,
    master: tuple[str, int],
    horovod: HorovodChoice,
    environ: Mapping[str, str],
    ports: WorldPorts = NO_PORTS,
) -> LaunchPlan:
    """The command and environment of this host's ranks.

    Args:
        python: the interpreter that has the job's requirements.
        master: address and port of rank 0.
        horovod: the leader's choice.
        ports: those of the world's first host.

    Raises:
        NotFound: the entry point is not in the source.
        InvalidJob: the launcher cannot start this kind of entry point, or custom_mpi_options are invalid.
        PlatformError: there is no suitable mpirun.
    """
    entry = _entry(config)
    host = config.host_in_world
    slots = tuple(RankSlot.on_host(host.rank, host.count, ranks_on_host(config, environ)))
    environment = _environment(config, python, master, horovod, environ)
    if host.hosts != config.distribution_hosts:
        master = ("127.0.0.1", master[1])  # this host's world has no other hosts
    ranks_on_machine = len(slots) * config.settings.hosts_on_machine
    if ranks_on_machine > 1:
        # otherwise, libraries would start a thread per processor in every rank
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // ranks_on_machine)))
    if config.launcher.name != "single":
        cpus = cpu_variables(host.count * len(slots), gpu_count(environ))
        environment = {**cpus, **environment}
    rank_arguments = [*entry, *config.script_arguments]
    one_machine = network_interface(config) == "lo"
    environments = rank_environments(config, slots, master)
    of_launcher = set(environments[0])
    of_frameworks = framework_environments(config, slots, master[0], ports, environ, one_machine=one_machine)
    of_trackers = tracker_environments(config, slots, environ)
    own = [{**frameworks, **trackers} for frameworks, trackers in zip(of_frameworks, of_trackers)]
    server = server_config(config, ports, one_machine=one_machine)
    agent = _agent(config, horovod)
    if not agent or agent == "agent":
        for rank_environment, variables in zip(environments, own):
            rank_environment.update(variables)
    rank_command = [python, f"{config.library}/{RANK_FILE}"]
    command: Sequence[str]
    programs = {}
    session = ""
    proxies_connect = False
    stored: tuple[str, ...] = ()
    if agent == "torchrun":
        if entry[0] == "--":
            raise InvalidJob(
                f"torch_distributed starts Python scripts, not {config.entry_point}",
                hint='Use distribution={"processes": {}} for other programs.',
            )
        # the job's grace period instead of torchrun's 30 s for the other ranks after one has failed
        environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(config.settings.stop_grace)))
        command = [
            *(python, f"{config.library}/{TORCHRUN_FILE}"),
            *_torchrun_options(slots[0], master, config.launcher.max_restarts),
            f"--log_dir={config.paths.run}/torchrun",  # by default, a folder in /tmp that survives a kill
            # torchrun would take --rdzv, an argument of the script, for its --rdzv-id
            *(rank_command[1], STORED_COMMAND),
        ]
    elif agent == "mpirun":
        session = mpirun.session_folder(str(config.paths.run))
        defaults = mpirun.environment(
            slots[0], session, network_interface(config), config.settings.hosts_on_machine
        )
        environment = {**defaults, **environment}
        environment.update(_common(environments[0]))
        programs[mpirun.REMOTE_SHELL] = mpirun.remote_shell(str(config.paths.run))
        command = ()  # mpirun sends the command of its daemon later
        if config.settings.srun:
            programs.clear()
            stored = tuple(rank_command)
            if host.leads:
                command = srun_command(dict(config.settings.srun), slots[0], environ, sys.executable)
        elif host.leads:
            options = config.launcher.custom_mpi_options
            shell = f"{config.paths.run.absolute()}/{PROGRAMS}/{mpirun.REMOTE_SHELL}"
            found = mpirun.Mpirun.find(environment)
            command = found.command(slots[0], rank_command, environment, options, remote_shell=shell)
            proxies_connect = found.is_mpich
    elif agent == "agent":
        # an outer job's, or the user's: ranks would take them for those that the agent sets
        environment = {name: value for name, value in environment.items() if name not in of_launcher}
        environment.update(
            {name: environments[0][name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in of_launcher}
        )
        command = agent_command(
            config.launcher.agent_command,
            config.launcher.agent_preset,
            slots[0],
            host.hosts,
            master,
            ports,
            run=str(config.paths.run.absolute()),
            python=python,
            program_folders=program_folders(config, python),
            rank_program=rank_command[1],
            environment=environment,
            one_machine=one_machine,
        )
    else:
        command = [*rank_command, *rank_arguments]
        if horovod.controller == "gloo":
            rendezvous = (master[0], horovod.port)
            for slot, rank_environment in zip(slots, environments):
                rank_environment.update(
                    horovod_environment(slot, config.host.current, rendezvous, network_interface(config))
                )
    return LaunchPlan(
        slots=slots,
        command=tuple(command),
        environment=environment,
        rank_environments=tuple(environments),
        agent_variables=tuple(
            {**_lost_in_shells(environment, config), **variables}
            for variables in (environments if agent == "agent" else own)
        ),
        hostfile=hostfile(
            host.hosts, len(slots) if config.launcher.name != "single" else gpu_count(environ) or 1
        ),
        server=(python, f"{config.library}/{PARAMETER_SERVER_FILE}") if server else (),
        server_variables={"TF_CONFIG": server, "CUDA_VISIBLE_DEVICES": "-1"},  # as in AWS's images
        cwd=config.paths.code,
        run=config.paths.run,
        agent=agent,
        rank_arguments=tuple(rank_arguments),
        programs=programs,
        signals_group=entry[0] == "--",
        session=session,
        proxies_connect=proxies_connect,
        stored_command=stored,
        hosts=host.count,
        serves=config.launcher.has_one_rank and not host.leads,
        restarts=agent == "torchrun" and config.launcher.max_restarts > 0,
    )


def ranks_on_host(config: HostConfig, environ: Mapping[str, str]) -> int:
    """As many as GPUs or, without any, Neuron cores, unless the job says otherwise."""
    accelerators = gpu_count(environ) or neuron_core_count(config.host.instance_type, environ)
    return config.launcher.ranks_on_host(accelerators)


def _is_alone(config: HostConfig) -> bool:
    """Whether the script runs as plain ``python train.py`` does: once, and not as a part of a world."""
    return config.launcher.name == "single" and config.host_in_world.count == 1


def network_interface(config: HostConfig) -> str:
    """The network interface for traffic between ranks."""
    return (
        "lo"
        if config.host_in_world.count == config.settings.hosts_on_machine
        else config.host.network_interface
    )


def _agent(config: HostConfig, horovod: HorovodChoice) -> str:
    """The program that starts the ranks; empty for the runtime itself."""
    if config.launcher.name == "horovod":
        return "mpirun" if horovod.controller == "mpi" else ""
    return config.launcher.name if config.launcher.name in ("torchrun", "mpirun", "agent") else ""


def _common(rank_environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that have the same value in all ranks of the host."""
    own = {name for names in (TORCHRUN, HOROVODRUN) for name in (names.rank, names.local_rank)}
    return {name: value for name, value in rank_environment.items() if name not in own}


def _lost_in_shells(environment: Mapping[str, str], config: HostConfig) -> dict[str, str]:
    """Variables whose names a shell drops, such as ``SM_HP_LEARNING-RATE``; no secrets.

    mpirun's daemons, and some launchers, are started by a shell.
    """
    hidden = config.settings.hidden_variables.split(",")
    return {
        name: value
        for name, value in environment.items()
        if not (name.isascii() and name.isidentifier()) and name not in hidden
    }


def _entry(config: HostConfig) -> list[str]:
    """The entry point as `cloudtrain.runtime.rank` takes it."""
    path = config.paths.code / config.entry_point
    if path.is_file():
        if path.suffix == ".py":
            return [config.entry_point]
        with path.open("rb") as file:
            start = file.read(START_BYTES)
        if not is_program(path.name, start):
            raise InvalidJob(
                f"entry point {config.entry_point} cannot be run: it is neither a Python file nor a program",
                hint="Name a Python file (.py), a shell script (.sh), or a file that begins with #!.",
            )
        if not is_executable(start):
            return ["--", "/bin/sh", config.entry_point]
        path.chmod(path.stat().st_mode | 0o100)
        return ["--", f"./{config.entry_point}"]
    if config.is_package or _is_module(config.paths.code, config.entry_point):
        return ["-m", config.entry_point]
    raise NotFound(
        f"entry point {config.entry_point} is not in the source of the job",
        hint=f"The source contains: {', '.join(sorted(item.name for item in config.paths.code.iterdir())[:20])}",
    )


def _is_module(code: Path, name: str) -> bool:
    """Whether ``python -m NAME`` finds a file in ``code``."""
    path = code.joinpath(*name.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__main__.py").is_file()


def _torchrun_options(slot: RankSlot, master: tuple[str, int], max_restarts: int) -> list[str]:
    # with underscores: PyTorch 1 has no other spelling
    return [
        f"--nnodes={slot.host_count}", f"--nproc_per_node={slot.local_size}", f"--node_rank={slot.host_rank}",
        f"--master_addr={master[0]}", f"--master_port={master[1]}", f"--max_restarts={max_restarts}",
        "--monitor_interval=0.1",  # as in PyTorch 2; PyTorch 1 would notice the end of a rank after 5 s
    ]  # fmt: skip


def _environment(
    config: HostConfig,
    python: str,
    master: tuple[str, int],
    horovod: HorovodChoice,
    environ: Mapping[str, str],
) -> dict[str, str]:
    script_variables = script_environment(
        config.paths,
        config.script_host,
        config.hyperparameters,
        config.channels,
        arguments=config.script_arguments,
        job_name=config.job_name,
        entry_point=config.entry_point,
        master=master,
        hider=ValueHider.of_variables(config.settings.hidden_variables.split(","), environ),
    )
    python_path = library_path(config, environ, alias=horovod.alias)
    inherited = mpirun.without_outer_mpi(environ)
    environment = {
        **without_empty(
            {**inherited, **outer_step(inherited)} if _is_alone(config) else without_outer_step(inherited)
        ),
        # SM_TRAINING_ENV repeats all hyperparameters three times; if it is too long, the other variables remain
        **{
            name: value
            for name, value in script_variables.items()
            if len(f"{name}={value}".encode()) < LONGEST_VARIABLE
        },
        "PYTHONPATH": python_path,
        SCRIPT_PYTHONPATH: os.pathsep.join([str(config.paths.code), python_path]).rstrip(os.pathsep),
        "PYTHONUNBUFFERED": "1",
        # "python" in a shell script is the script's interpreter
        "PATH": os.pathsep.join([*program_folders(config, python), environ.get("PATH", os.defpath)]),
        "CLOUDTRAIN_RUN_DIR": str(config.paths.run),
        EVENTS_FILE: str(config.paths.events.absolute()),
        RUN_ID: config.run_id,
        HOSTFILE: hostfile_path(str(config.paths.run.absolute())),
    }
    interface = network_interface(config)
    if interface in (name for _, name in socket.if_nameindex()):
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(variable, interface)
    for variable, value in efa_variables(config.host.instance_type).items():
        environment.setdefault(variable, value)
    compatibility = compatibility_folder()
    if compatibility:
        folders = filter(None, [compatibility, environment.get("LD_LIBRARY_PATH")])
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    if config.settings.timeline:
        environment.setdefault("HOROVOD_TIMELINE", str(config.paths.output_data / TIMELINE))
    return environment


def program_folders(config: HostConfig, python: str) -> list[str]:
    """The folders of the programs of the packages that ``python`` can import: those of requirements, then others."""
    return [os.path.dirname(python), *filter(None, [os.path.dirname(config.settings.python)])]


def library_path(config: HostConfig, environ: Mapping[str, str], *, alias: bool = False) -> str:
    """The PYTHONPATH of ``environ``, and cloudtrain's folder if the interpreter would not find it otherwise.

    Args:
        alias: put cloudtrain's ``horovod`` before any other.
    """
    paths = list(filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))
    library = config.library
    if os.path.basename(library) not in ("site-packages", "dist-packages") and library not in paths:
        paths.append(library)
    if alias:
        paths.insert(0, f"{library}/cloudtrain/alias")
    return os.pathsep.join(paths)


def show_command(plan: LaunchPlan) -> str:
    """The command in shell syntax, for the log. Bytes that are not text are escaped."""
    arguments = plan.rank_arguments if plan.agent and plan.command else ()
    command = [part for part in plan.command if part not in (STORED_COMMAND, AGENT_COMMAND)]
    shown = shlex.join([*command, *arguments]).replace(sys.executable, "python")
    return shown.encode(errors="backslashreplace").decode()
