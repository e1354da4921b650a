"""A job's containers and network in an engine: their names, labels and contents."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from cloudtrain._system.users import user_id, user_name
from cloudtrain.contract import Launcher, cpu_count, decode_hyperparameters
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.request_body import request_environment, request_settings
from cloudtrain.engine.client import CAPABILITIES, SERVICES, Bind, Spec
from cloudtrain.platforms.common.bundled_runtime import SOURCE_CHANNEL
from cloudtrain.runtime.supervisor.folder import JobFolder

JOB = "cloudtrain.job"
OWNER = "cloudtrain.owner"
"""The user's ID."""
MACHINE = "cloudtrain.machine"
"""The name of the machine, because several machines can use one engine."""
FOLDER = "cloudtrain.folder"
"""The job's folder, which the job's supervisor locks while it is alive."""


def own_labels() -> dict[str, str]:
    """Labels of every container and network that this user creates from this machine."""
    return {OWNER: str(user_id()), MACHINE: socket.gethostname()}


def job_labels(job_name: str, folder: Path) -> dict[str, str]:
    return {JOB: job_name, FOLDER: str(folder), **own_labels()}


def network_name(job_name: str, folder: Path) -> str:
    """A name that is unique in an engine, even if another user's job has the same name."""
    return f"cloudtrain-{job_name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

NVIDIA = Path("/proc/driver/nvidia/gpus")
"""This folder is visible in every container, even one without GPUs."""


def container_spec(
    folder: JobFolder,
    request: Mapping[str, Any],
    rank: int,
    host: str,
    attempt: int,
    binds: Sequence[Bind],
    user: str | None,
    memory: int,
    ran: float = 0.0,
) -> Spec:
    """The container of ``host``, which has index ``rank`` in the job. Takes secrets from this process's environment.

    Args:
        memory: the bytes of memory of the engine's machine. As on Linux, ``/dev/shm`` may use half of it by default.
            That is a limit, which reserves nothing.
        ran: see `Settings.ran`.
    """
    resources = request["resources"]
    network = network_name(folder.name, folder.path)
    return Spec(
        name=f"{network}-{host}",
        hostname=host,
        image=request["image"],
        network=network,
        entrypoint=request.get("entrypoint"),
        command=request["command"],
        environment=_environment(request, attempt, user, folder.run_id, ran),
        binds=binds,
        labels=job_labels(folder.name, folder.path),
        user=user,
        gpus=_gpus(resources["gpus"], rank),
        memory=size_in_bytes(resources["memory"]) if resources["memory"] else None,
        shm_size=size_in_bytes(resources["shm_size"]) if resources["shm_size"] else memory // 2,
        capabilities=_capabilities(request),
        new_privileges=request["new_privileges"],
    )


def _capabilities(request: Mapping[str, Any]) -> list[str]:
    services = SERVICES if request["runtime"] != "cloudtrain" else ()
    return sorted({*CAPABILITIES, *services, *request["capabilities"]})


def _environment(
    request: Mapping[str, Any], attempt: int, user: str | None, run_id: str, ran: float
) -> dict[str, str]:
    given = request_environment(request)
    defaults = _home(user) if user else {}
    if not request["resources"]["gpus"] and NVIDIA.is_dir():
        defaults["CUDA_VISIBLE_DEVICES"] = ""
    if request["runtime"] != "cloudtrain":
        return {**defaults, **given}
    settings = replace(
        request_settings(request),
        output_uri="",
        checkpoint_uri=_checkpoint_uri(request["checkpoint_path"]),
        source_channel=SOURCE_CHANNEL,
        channels=(),
        attempt=attempt,
        ran=ran,
        run_id=run_id,
    )
    own = {
        **settings.to_environ(),
        "CLOUDTRAIN_ATTEMPT": str(attempt),  # even 0, which is the default
        "CLOUDTRAIN_DIE_WITH_PARENT": "stdin",
    }
    return {**defaults, **_shared_processors(request), **given, **own}


def _checkpoint_uri(path: str) -> str:
    """The URI of checkpoints for the runtime; empty for ``checkpoints/``, which is its default."""
    return "" if path == f"{DEFAULT_BASE}/checkpoints" else PurePosixPath(path).as_uri()


def _shared_processors(request: Mapping[str, Any]) -> dict[str, str]:
    """Variables that limit the threads of the hosts, because each of them sees every processor of this machine."""
    hosts = request["host_count"]
    if hosts == 1:
        return {}
    gpus = request["resources"]["gpus"]
    launcher = Launcher.from_hyperparameters(decode_hyperparameters(request["hyperparameters"]))
    ranks = hosts * launcher.ranks_on_host(gpus if isinstance(gpus, int) else 0)
    environment = {"OMP_NUM_THREADS": str(max(1, cpu_count() // ranks))}
    return {**environment, "OMPI_MCA_mpi_yield_when_idle": "1"} if ranks > cpu_count() else environment


def _home(user: str) -> dict[str, str]:
    """Variables for a user who may not exist in the image."""
    environment = {"HOME": "/tmp"}
    with suppress(KeyError):
        environment["USER"] = environment["LOGNAME"] = user_name(int(user.partition(":")[0]))
    return environment


def _gpus(wanted: int | str | Sequence[str] | None, rank: int) -> str | list[str] | None:
    """``"all"``, or the names of the host's GPUs. With a number, consecutive hosts get consecutive GPUs."""
    if isinstance(wanted, int):
        return [str(rank * wanted + number) for number in range(wanted)]
    return wanted if wanted is None or isinstance(wanted, str) else list(wanted)


def size_in_bytes(text: str) -> int:
    """
    >>> size_in_bytes("1.5g")
    1610612736
    """
    unit = text[-1].lower()
    return int(float(text[:-1]) * _UNITS[unit]) if unit in _UNITS else int(float(text))
