"""A job as the request that the local supervisor carries out."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from cloudtrain.contract import Settings, encode_hyperparameters
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.channels import (
    channel_configs,
    check_channels,
    instance_groups,
)
from cloudtrain.platforms.common.hyperparameters import runtime_hyperparameters
from cloudtrain.platforms.common.request import job_settings
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.spec import TrainingJob, convert, is_secret_name, redact
from cloudtrain.storage import state_home


class LocalOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """``platform_options`` of the local platform.

    Attributes:
        python: the interpreter that runs the script: Python 3.9 or newer, which need not have cloudtrain. Default:
            the one that submits the job.
        master_port: the port on which rank 0 listens; 0 for a free one.
        max_preemptions: how often a preempted job is started again, which does not count as a retry.
    """

    python: str | None = None
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which has a name and a packed source.

    Raises:
        InvalidJob: the job wants something that the local platform has not.
    """
    assert job.job_name, "a job is named before it is rendered"
    options = convert(job.platform_options, LocalOptions, "platform_options")
    _check(job)
    hosts = [f"algo-{number + 1}" for number in range(job.host_count)]
    environment = {**job.environment, **_settings(job, options).to_environ()}
    body: dict[str, Any] = {
        "job_name": job.job_name,
        "hosts": hosts,
        "instance_type": job.instance_type or "local",
        "python": _interpreter(options),
        "hyperparameters": encode_hyperparameters({**job.hyperparameters, **runtime_hyperparameters(job)}),
        "channels": channel_configs(job),
        "environment": redact(environment),
        "max_run": job.max_run,
        "max_retry_attempts": job.max_retry_attempts,
        "max_preemptions": options.max_preemptions,
        "stop_grace": job.stop_grace,
    }
    if job.instance_groups:
        body["instance_groups"] = instance_groups(job, hosts)
    secrets = {name: value for name, value in environment.items() if is_secret_name(name)}
    return Request("local", job.job_name, body, secrets)


def _check(job: TrainingJob) -> None:
    if job.entry_point is None:
        raise InvalidJob("entry_point: the local platform needs one", hint="Name the script to run.")
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(f"{field}: the local platform has no containers", hint="Leave it out.")
    check_channels(job, "local")


def _interpreter(options: LocalOptions) -> str:
    """The absolute path of the interpreter, which is not resolved: a virtual environment is a link."""
    if options.python is None:
        return sys.executable
    found = shutil.which(options.python)
    if found is None:
        raise InvalidJob(
            f"platform_options.python: there is no program {options.python!r}",
            hint="Give the path of a Python 3.9 or newer, or leave it out to use this one.",
        )
    return os.path.abspath(found)


def _settings(job: TrainingJob, options: LocalOptions) -> Settings:
    assert job.job_name
    folder = JobFolder.of("local", job.job_name)
    return replace(
        job_settings(job, folder, options.master_port),
        rendezvous=str(folder.path / "leader"),
        master_addr="127.0.0.1",
        events=str(folder.events),
        hosts_on_machine=job.host_count,
        requirements_cache=str(state_home() / "environments"),
    )
