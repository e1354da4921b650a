"""Renders a job as a request to PBS Professional, Torque or Cobalt, with its batch script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.container_options import container_body
from cloudtrain.platforms.batch.request import with_source_on_cluster
from cloudtrain.platforms.batch.script import Script
from cloudtrain.platforms.common.channels import check_channels
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import base_body, new_request
from cloudtrain.platforms.pbs.directives import directives
from cloudtrain.platforms.pbs.options import PbsOptions
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.spec import TrainingJob

STEP = "cloudtrain.runtime.pbs.step"
PYTHON = "python3"

SUBMIT = {"pbs": "qsub job.sh", "torque": "qsub job.sh", "cobalt": "qsub --mode script job.sh"}


def render(platform: str, job: TrainingJob, options: PbsOptions, cluster: Cluster) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises InvalidJob if the platform cannot run the job.
    """
    check(platform, job)
    assert job.job_name
    runtime = cluster.runtime_file(runtime_sha256())
    folder = cluster.job_folder(job.job_name)
    script = Script(
        job.job_name,
        directives(platform, job, options),
        list(_setup(options, folder)),
        [options.python or PYTHON, runtime, STEP, folder],
        options.epilogue,
        submit=SUBMIT[platform],
        title_last=platform == "cobalt",
    )
    body: dict[str, Any] = {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        "cluster": {"folder": cluster.folder},
        "bundled_runtime": runtime,
        **_given(options),
        **_container(job, options),
        "hyperparameters": encoded_hyperparameters(with_source_on_cluster(job, cluster)),
        "script": script.to_text(),
    }
    return new_request(platform, job, body)


def check(platform: str, job: TrainingJob) -> None:
    """Raises InvalidJob for a job that no options make a job for the platform."""
    if job.entry_point is None:
        raise InvalidJob(
            f"entry_point: the {platform} platform needs a script", hint="Name the script to run."
        )
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(
                f"{field}: the {platform} platform starts the script itself", hint="Leave it out."
            )
    check_channels(job, platform)


def _setup(options: PbsOptions, folder: str) -> Iterator[str]:
    yield f"exec >>{shlex.quote(f'{folder}/{SUPERVISOR_LOG}')} 2>&1"
    if options.modules:
        yield f"module load {shlex.join(options.modules)}"
    yield from options.prologue


def _given(options: PbsOptions) -> dict[str, Any]:
    """The options that the nodes need."""
    values = {
        "start": options.start if options.start != "auto" else None,
        "node_folder": options.node_folder,
        "network_interface": options.network_interface if options.network_interface != "auto" else None,
    }
    return {name: value for name, value in values.items() if value}


def _container(job: TrainingJob, options: PbsOptions) -> dict[str, Any]:
    mounts, more, home = options.container_mounts, options.container_options, options.container_home
    return container_body(job, options.container, mounts, more, home)
