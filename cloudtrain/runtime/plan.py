"""Reads the contract: what this host has to do, and the command that does it."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.contract import (
    Host,
    Launcher,
    Paths,
    RankSlot,
    Settings,
    cpu_count,
    decode_hyperparameters,
    gpu_count,
    read_document,
    script_environment,
    to_arguments,
    user_hyperparameters,
)
from cloudtrain.errors import InvalidJob, NotFound
from cloudtrain.runtime.launch import LaunchPlan
from cloudtrain.runtime.record import AGENT_PROGRAM, PROMISED_PATH, RANK_PROGRAM

LONGEST_VARIABLE = 128 * 1024
"""Bytes that Linux passes in one variable (MAX_ARG_STRLEN, execve(2)), the zero at the end included."""


@dataclass(frozen=True)
class HostPlan:
    """Everything that the contract's files and variables say, read once."""

    paths: Paths
    settings: Settings
    host: Host
    hyperparameters: Mapping[str, Any]
    channels: Mapping[str, Mapping[str, Any]]
    launcher: Launcher

    @classmethod
    def read(cls, paths: Paths, environ: Mapping[str, str]) -> HostPlan:
        """Raises InvalidJob when a file or a variable does not hold what it should."""
        try:
            hyperparameters = decode_hyperparameters(
                read_document(paths.input_config / "hyperparameters.json", {})
            )
            resources = read_document(paths.input_config / "resourceconfig.json", None)
            return cls(
                paths=paths,
                settings=Settings.from_environ(environ),
                host=Host.from_document(resources) if resources else Host.alone(),
                hyperparameters=hyperparameters,
                channels=read_document(paths.input_config / "inputdataconfig.json", {}),
                launcher=Launcher.from_hyperparameters(hyperparameters),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidJob(f"the job's configuration cannot be read: {error}") from None

    @property
    def job_name(self) -> str:
        return self.settings.job_name or str(self.hyperparameters.get("sagemaker_job_name", "job"))

    @property
    def entry_point(self) -> str:
        """Raises InvalidJob when the job names none."""
        entry_point = self.hyperparameters.get("sagemaker_program")
        if not entry_point:
            raise InvalidJob(
                "the job names no entry point: sagemaker_program is not among its hyperparameters"
            )
        return str(entry_point)

    @property
    def source_uri(self) -> str | None:
        uri = self.hyperparameters.get("sagemaker_submit_directory")
        return str(uri) if uri else None

    @property
    def is_package(self) -> bool:
        """Whether the entry point is a module of a package in the code folder, not a file."""
        code = self.paths.code
        return not (code / self.entry_point).is_file() and any(
            (code / name).is_file() for name in ("pyproject.toml", "setup.py")
        )


def launch_plan(
    plan: HostPlan, python: str, master: tuple[str, int], environ: Mapping[str, str]
) -> LaunchPlan:
    """The command and environment of this host's ranks.

    Args:
        python: the interpreter that has the job's requirements.
        master: address and port of rank 0.

    Raises:
        NotFound: the entry point is not in the source.
        InvalidJob: the launcher cannot start this kind of entry point.
    """
    entry = _entry(plan)
    local_size = plan.launcher.ranks_on_host(gpu_count(environ))
    slots = tuple(RankSlot.on_host(plan.host.rank, plan.host.count, local_size))
    environment = _environment(plan, master, environ)
    arguments = to_arguments(user_hyperparameters(plan.hyperparameters))
    run = plan.paths.run
    environment["CLOUDTRAIN_RUN_DIR"] = str(run)
    ranks_on_machine = local_size * plan.settings.hosts_on_machine
    if ranks_on_machine > 1:
        # each library would start a thread for every processor, in every rank
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // ranks_on_machine)))
    # a shell script that says python means this one
    environment["PATH"] = os.pathsep.join([os.path.dirname(python), environ.get("PATH", os.defpath)])
    agent = plan.launcher.name == "torchrun"
    if agent:
        if entry[0] == "--":
            raise InvalidJob(
                f"torch_distributed starts Python scripts, not {plan.entry_point}",
                hint='Use distribution={"processes": {}} for other programs.',
            )
        environment["CLOUDTRAIN_AGENT_REPORT"] = str(run / "agent.json")
        # the grace is the job's to give: once a rank has ended, torchrun leaves the others 30 s otherwise
        environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(plan.settings.stop_grace)))
        command = _torchrun(python, plan.host, local_size, master, [*entry, *arguments])
    elif plan.launcher.name in ("single", "processes"):
        command = [python, RANK_PROGRAM, *entry, *arguments]
    else:
        raise InvalidJob(
            f"this version of the runtime cannot launch by {plan.launcher.name}",
            hint="Use torch_distributed or processes.",
        )
    return LaunchPlan(
        slots=slots,
        command=tuple(command),
        environment=environment,
        rank_environments=tuple(slot.environment(*master) for slot in slots),
        cwd=plan.paths.code,
        run=run,
        agent=agent,
        signals_group=entry[0] == "--",
    )


def _entry(plan: HostPlan) -> list[str]:
    """The entry point as `cloudtrain.runtime.rank` takes it."""
    path = plan.paths.code / plan.entry_point
    if path.is_file():
        if path.suffix == ".py":
            return [plan.entry_point]
        with path.open("rb") as file:
            start = file.read(4)
        if start[:2] != b"#!" and start != b"\x7fELF":
            return ["--", "/bin/sh", plan.entry_point]
        path.chmod(path.stat().st_mode | 0o100)
        return ["--", f"./{plan.entry_point}"]
    if plan.is_package:
        return ["-m", plan.entry_point]
    raise NotFound(
        f"entry point {plan.entry_point} is not in the source of the job",
        hint=f"The source has: {', '.join(sorted(item.name for item in plan.paths.code.iterdir())[:20])}",
    )


def _torchrun(
    python: str, host: Host, local_size: int, master: tuple[str, int], script: list[str]
) -> list[str]:
    return [
        python, AGENT_PROGRAM,
        f"--nnodes={host.count}", f"--nproc-per-node={local_size}", f"--node-rank={host.rank}",
        f"--master-addr={master[0]}", f"--master-port={master[1]}",
        RANK_PROGRAM, *script,
    ]  # fmt: skip


def _environment(plan: HostPlan, master: tuple[str, int], environ: Mapping[str, str]) -> dict[str, str]:
    promised = script_environment(
        plan.paths,
        plan.host,
        plan.hyperparameters,
        plan.channels,
        job_name=plan.job_name,
        entry_point=plan.entry_point,
        master=master,
    )
    environment = {
        **environ,
        # SM_TRAINING_ENV holds all hyperparameters three times: where that is too long, they stand in the others
        **{
            name: value
            for name, value in promised.items()
            if len(f"{name}={value}".encode()) < LONGEST_VARIABLE
        },
        "PYTHONPATH": _python_path(environ),
        PROMISED_PATH: os.pathsep.join([str(plan.paths.code), _python_path(environ)]).rstrip(os.pathsep),
        "PYTHONUNBUFFERED": "1",
    }
    if plan.host.network_interface in (name for _, name in socket.if_nameindex()):
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(variable, plan.host.network_interface)
    return environment


def _python_path(environ: Mapping[str, str]) -> str:
    """What was there, and the folder cloudtrain is in, unless Python looks there anyway."""
    home = Path(__file__).parents[2]
    paths = list(filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))
    if home.name not in ("site-packages", "dist-packages") and str(home) not in paths:
        paths.append(str(home))
    return os.pathsep.join(paths)


def show_command(plan: LaunchPlan) -> str:
    """The command as a shell would take it, for the log."""
    return shlex.join(plan.command).replace(sys.executable, "python")
