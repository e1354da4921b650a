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
from cloudtrain.contract.frameworks import (
    HOSTFILE,
    LOOPBACK,
    PARAMETER_SERVER,
    TF_CONFIG,
    WorldPorts,
    address,
    framework_variables,
    hostfile,
    tf_config,
    without_set,
)
from cloudtrain.contract.processors import neuron_core_count
from cloudtrain.contract.rank import CLOUDTRAIN, HOROVODRUN
from cloudtrain.contract.source import START_BYTES, is_executable, is_program
from cloudtrain.contract.trackers import RUN_ID, tracker_variables, without_auto, without_empty
from cloudtrain.errors import InvalidJob, NotFound
from cloudtrain.observe.progress import VARIABLE as EVENTS_FILE
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.gpu_environment import compatibility_folder, cpu_variables, efa_variables
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.launchers.rank_starters import RanksOfHost, rank_starter
from cloudtrain.runtime.outer_variables import outer_step, without_outer_mpi, without_outer_step
from cloudtrain.runtime.run_folder import (
    AGENT_COMMAND,
    PARAMETER_SERVER_FILE,
    SCRIPT_PYTHONPATH,
    STORED_COMMAND,
    hostfile_path,
)

TIMELINE = "timeline/timeline.json"
"""The path of the ranks' timelines, below ``output/data/``."""
LONGEST_VARIABLE = 128 * 1024
"""The longest variable that Linux passes to a process, in bytes, including the final zero (MAX_ARG_STRLEN)."""

NO_PORTS = WorldPorts()
NO_RUNS: Mapping[str, str] = {}


def make_launch_plan(
    config: HostConfig,
    python: str,
    master: tuple[str, int],
    horovod: HorovodChoice,
    environ: Mapping[str, str],
    ports: WorldPorts = NO_PORTS,
    mlflow_runs: Mapping[str, str] = NO_RUNS,
) -> LaunchPlan:
    """The command and environment of this host's ranks.

    Args:
        python: the interpreter that has the job's requirements.
        master: address and port of rank 0.
        horovod: the leader's choice.
        ports: the ports of the world's first host.
        mlflow_runs: see `tracker_variables`.

    Raises:
        NotFound: the entry point is not in the source.
        InvalidJob: the launcher cannot start this kind of entry point, or custom_mpi_options are invalid.
        PlatformError: there is no suitable mpirun.
    """
    environ = without_auto(environ)
    entry = _entry(config)
    host = config.host_in_world
    slots = tuple(RankSlot.on_host(host.rank, host.count, ranks_on_host(config, environ)))
    environment = _environment(config, python, master, horovod, environ)
    if host.hosts != config.distribution_hosts:
        master = ("127.0.0.1", master[1])  # this host's world has no other hosts
    ranks_on_machine = len(slots) * config.settings.hosts_on_machine
    if ranks_on_machine > 1:
        # by default, libraries start one thread per processor in every rank
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // ranks_on_machine)))
    is_single = config.launcher.is_none
    if not is_single:
        cpus = cpu_variables(host.count * len(slots), gpu_count(environ))
        environment = {**cpus, **environment}
    interface = network_interface(config)
    environments = list(rank_environments(config, slots, master))
    place = frozenset(environments[0])
    one_machine = interface == "lo"
    of_frameworks = framework_environments(config, slots, master[0], ports, environ, one_machine=one_machine)
    of_trackers = tracker_environments(config, slots, environ, mlflow_runs)
    own = [{**frameworks, **trackers} for frameworks, trackers in zip(of_frameworks, of_trackers)]
    starter = rank_starter(config, horovod)
    if starter.passes_variables:
        for rank_environment, variables in zip(environments, own):
            rank_environment.update(variables)
    ranks = RanksOfHost(
        config=config,
        python=python,
        program_folders=program_folders(config, python),
        master=master,
        ports=ports,
        interface=interface,
        horovod=horovod,
        environ=environ,
        slots=slots,
        environment=environment,
        rank_environments=environments,
        place=place,
        rank_arguments=(*entry, *config.script_arguments),
    )
    start = starter.start(ranks)
    server = server_config(config, ports, one_machine=one_machine)
    return LaunchPlan(
        slots=slots,
        command=start.command,
        environment=start.environment,
        rank_environments=tuple(environments),
        agent_variables=tuple(
            {**_lost_in_shells(start.environment, config), **variables}
            for variables in (environments if starter.passes_variables else own)
        ),
        hostfile=hostfile(host.hosts, (gpu_count(environ) or 1) if is_single else len(slots)),
        server=(python, f"{config.library}/{PARAMETER_SERVER_FILE}") if server else (),
        server_variables={"TF_CONFIG": server, "CUDA_VISIBLE_DEVICES": "-1"},  # as in AWS's images
        cwd=config.paths.code,
        run=config.paths.run,
        agent=starter.name,
        rank_arguments=ranks.rank_arguments,
        programs=start.programs,
        signals_group=not ranks.is_python,
        session=start.session,
        proxies_connect=start.proxies_connect,
        stored_command=start.stored_command,
        hosts=host.count,
        serves=config.launcher.has_one_rank and not host.leads,
        restarts=start.restarts,
    )


def ranks_on_host(config: HostConfig, environ: Mapping[str, str]) -> int:
    """The job's setting; by default, the number of GPUs or, without any, of Neuron cores."""
    accelerators = gpu_count(environ) or neuron_core_count(config.host.instance_type, environ)
    return config.launcher.ranks_on_host(accelerators)


def _is_alone(config: HostConfig) -> bool:
    """Whether the script runs as with plain ``python train.py``: once, and not as part of a world."""
    return config.launcher.is_none and config.host_in_world.count == 1


def network_interface(config: HostConfig) -> str:
    """The network interface for traffic between ranks."""
    return (
        "lo"
        if config.host_in_world.count == config.settings.hosts_on_machine
        else config.host.network_interface
    )


def _lost_in_shells(environment: Mapping[str, str], config: HostConfig) -> dict[str, str]:
    """Variables whose names a shell drops, such as ``SM_HP_LEARNING-RATE``, except secrets.

    mpirun's daemons, and some launchers, are started by a shell.
    """
    hidden = config.settings.hidden_variables.split(",")
    return {
        name: value
        for name, value in environment.items()
        if not (name.isascii() and name.isidentifier()) and name not in hidden
    }


def _entry(config: HostConfig) -> list[str]:
    """The entry point, as arguments of `cloudtrain.runtime.rank`."""
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
    inherited = without_outer_mpi(environ)
    environment = {
        **without_empty(
            {**inherited, **outer_step(inherited)} if _is_alone(config) else without_outer_step(inherited)
        ),
        # SM_TRAINING_ENV repeats all hyperparameters three times; if it is too long, only the others are set
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
    """The folders with console scripts of packages that ``python`` can import; the job's requirements come first."""
    return [os.path.dirname(python), *filter(None, [os.path.dirname(config.settings.python)])]


def library_path(config: HostConfig, environ: Mapping[str, str], *, alias: bool = False) -> str:
    """The PYTHONPATH of ``environ``, with cloudtrain's folder unless the interpreter finds it without that.

    Args:
        alias: whether to put cloudtrain's ``horovod`` before any other.
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


def rank_environments(
    config: HostConfig, slots: Sequence[RankSlot], master: tuple[str, int]
) -> list[dict[str, str]]:
    """For each rank, the variables that its launcher sets: torchrun's, or cloudtrain's own without a launcher."""
    if config.launcher.has_one_rank:
        return [RankSlot(0, 0, 1, 1, 0, 1).variables(CLOUDTRAIN) for _ in slots]
    if config.launcher.is_none:
        return [slot.environment_without_launcher(*master) for slot in slots]
    environments = [slot.environment(*master) for slot in slots]
    if config.launcher.is_horovod:
        for slot, environment in zip(slots, environments):
            environment.update(slot.variables(HOROVODRUN))
    return environments


def framework_environments(
    config: HostConfig,
    slots: Sequence[RankSlot],
    master_addr: str,
    ports: WorldPorts,
    environ: Mapping[str, str],
    *,
    one_machine: bool,
) -> list[dict[str, str]]:
    """For each rank, the variables of other frameworks that the user has not set; none if the ranks have no world."""
    has_world = not config.launcher.is_none or slots[0].host_count > 1
    if config.launcher.has_one_rank or not has_world:
        return [{} for _ in slots]
    gpus = gpu_count(environ)
    environments = [framework_variables(slot, master_addr, ports, gpus) for slot in slots]
    cluster = _cluster(config, ports, one_machine=one_machine)
    if cluster:
        environments[0][TF_CONFIG] = tf_config(config.launcher.name, slots[0].host_rank, *cluster)
    return [
        without_set({name: value for name, value in environment.items() if value}, environ)
        for environment in environments
    ]


def tracker_environments(
    config: HostConfig,
    slots: Sequence[RankSlot],
    environ: Mapping[str, str],
    mlflow_runs: Mapping[str, str],
) -> list[dict[str, str]]:
    """For each rank, the variables of trackers that the user has not set."""
    environments = []
    for slot in slots:
        part = f"rank{slot.rank}" if slot.rank else ""
        if config.host.current not in config.distribution_hosts:
            part = config.host.current  # its only rank is rank 0 of another world
        variables = tracker_variables(
            config.job_name, config.run_id, part, config.settings.attempt, mlflow_runs
        )
        if environ.get("WANDB_MODE") == "offline":  # W&B writes runs to a folder `wandb` there
            variables["WANDB_DIR"] = str(
                config.paths.output if config.settings.output_uri else config.paths.output_data
            )
        environments.append(without_set(variables, environ))
    return environments


def server_config(config: HostConfig, ports: WorldPorts, *, one_machine: bool) -> str:
    """``TF_CONFIG`` of this host's parameter server; empty if it has none."""
    cluster = _cluster(config, ports, one_machine=one_machine)
    if not config.launcher.has_servers or cluster is None:
        return ""
    workers, servers = cluster
    if len(workers) == 1:
        return ""
    return tf_config(PARAMETER_SERVER, config.host_in_world.rank, workers, servers, is_server=True)


def _cluster(
    config: HostConfig, ports: WorldPorts, *, one_machine: bool
) -> tuple[list[str], list[str]] | None:
    """The addresses of the workers and of the parameter servers of all hosts, for TensorFlow."""
    if not config.launcher.has_tasks:
        return None
    names = [LOOPBACK if one_machine else name for name in config.host_in_world.hosts]
    workers = [address(name, worker) for name, (worker, _) in zip(names, ports.tasks)]
    return workers, [address(name, server) for name, (_, server) in zip(names, ports.tasks)]
