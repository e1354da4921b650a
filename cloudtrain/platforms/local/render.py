"""Renders a job as a request for the local supervisor."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.common.request import base_body, check_channels, new_request
from cloudtrain.spec import TrainingJob, convert


class LocalOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """``platform_options`` of the local platform.

    Attributes:
        python: the interpreter that runs the script: Python 3.9 or newer, which need not have cloudtrain. Default:
            the interpreter that submits the job.
        master_port: the port on which rank 0 listens; 0 for a free one.
        max_preemptions: how often a preempted job is restarted. These restarts do not count as retries.
        mount_opt_ml: whether ``/opt/ml`` is the job's folder, where the kernel permits that. With False, an ordinary
            user's script may use sudo and other setuid programs, and sees the machine's own ``/opt/ml``.
    """

    python: str | None = None
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10
    mount_opt_ml: bool = True


def resolve(job: TrainingJob) -> TrainingJob:
    """``job`` with the absolute path of its interpreter. Raises InvalidJob."""
    options = _options(job)
    _check(job)
    python = _interpreter(options)
    return msgspec.structs.replace(job, platform_options={**job.platform_options, "python": python})


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises:
        InvalidJob: the local platform cannot run the job.
    """
    options = _options(job)
    _check(job)
    body = {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        "python": options.python,
        **({} if options.mount_opt_ml else {"mount_opt_ml": False}),
        "hyperparameters": encoded_hyperparameters(job),
    }
    return new_request("local", job, body)


def _options(job: TrainingJob) -> LocalOptions:
    check_own_options("local", job.platform_options)
    return convert(job.platform_options, LocalOptions, "platform_options")


def _check(job: TrainingJob) -> None:
    if job.entry_point is None:
        raise InvalidJob("entry_point: the local platform needs a script", hint="Name the script to run.")
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(f"{field}: the local platform has no containers", hint="Leave it out.")
    agent = job.distribution.agent if job.distribution else None
    if agent and agent.enabled and agent.preset == "ray" and job.host_count > 1:
        raise InvalidJob(
            "distribution.agent: Ray runs once on a machine, and all hosts of the local platform are on one",
            hint="Use instance_count: 1. Ray uses all processors and GPUs of the machine then.",
        )
    check_channels(job, "local")


def _interpreter(options: LocalOptions) -> str:
    """The absolute path of the interpreter. Links are not resolved, because a virtual environment needs them."""
    if options.python is None:
        return sys.executable
    wanted = os.path.expanduser(options.python)
    if os.path.dirname(wanted):
        wanted = os.path.abspath(wanted)
    found = shutil.which(wanted)
    if found is None:
        inside = os.path.join(wanted, "bin", "python")
        raise InvalidJob(
            f"platform_options.python: {_missing(wanted)}",
            hint=f"Set it to the interpreter in it: {inside}"
            if os.access(inside, os.X_OK)
            else "Set it to the path of a Python 3.9 or newer, or leave it out to use this one.",
        )
    return os.path.abspath(found)


def _missing(program: str) -> str:
    if not os.path.dirname(program):
        return f"there is no program {program!r} on the PATH"
    if os.path.isdir(program):
        return f"{program!r} is a folder, not a program"
    return (
        f"{program!r} is not an executable file"
        if os.path.exists(program)
        else f"there is no program {program!r}"
    )
