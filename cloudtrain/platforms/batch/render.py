"""Renders a job as a request to a scheduler, with its batch script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.container_options import container_body
from cloudtrain.platforms.batch.request import with_source_on_cluster
from cloudtrain.platforms.batch.scheduler import Scheduler
from cloudtrain.platforms.batch.script import Script
from cloudtrain.platforms.common.channels import check_channels
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import base_body, new_request
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.spec import TrainingJob

STEP = "cloudtrain.runtime.batch.step"
PYTHON = "python3"

COUNT = Annotated[int, Meta(ge=1)]
WORD = Annotated[str, Meta(min_length=1, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
"""A part of a directive: without spaces."""
LINE = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]


class BatchOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options that do not depend on the scheduler.

    The defaults of the queue apply to everything that is not given.
    """

    login: LINE | None = None
    folder: LINE | None = None
    node_folder: LINE | None = None
    queue: WORD | None = None
    project: WORD | None = None
    cpus: COUNT | None = None
    gpus: COUNT | None = None
    gpu_type: WORD | None = None
    mem: WORD | None = None
    directives: list[LINE] = []
    modules: list[LINE] = []
    prologue: list[str] = []
    epilogue: list[str] = []
    python: LINE | None = None
    container: Literal["none", "apptainer", "charliecloud", "enroot"] | None = None
    container_mounts: list[LINE] = []
    container_options: list[LINE] = []
    container_home: bool = False
    network_interface: WORD = "auto"
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10


def render(scheduler: Scheduler, job: TrainingJob, options: BatchOptions, cluster: Cluster) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises InvalidJob if the platform cannot run the job.
    """
    check(scheduler.platform, job)
    assert job.job_name
    runtime = cluster.runtime_file(runtime_sha256())
    folder = cluster.job_folder(job.job_name)
    script = Script(
        job.job_name,
        scheduler.lines(job, options),
        [f"exec >>{shlex.quote(f'{folder}/{SUPERVISOR_LOG}')} 2>&1", *setup(options)],
        [options.python or PYTHON, runtime, STEP, folder],
        options.epilogue,
        submit=scheduler.by_hand,
        title_last=scheduler.title_last,
    )
    start = getattr(options, "start", "auto")
    place = {"folder": cluster.folder, **({"login": cluster.login} if cluster.login else {})}
    given = {"start": start if start != "auto" else None}
    return new_request(
        scheduler.platform, job, batch_body(job, options, cluster, runtime, place, given, script)
    )


def batch_body(
    job: TrainingJob,
    options: Any,
    cluster: Cluster,
    runtime: str,
    place: Mapping[str, Any],
    given: Mapping[str, Any],
    script: Script,
) -> dict[str, Any]:
    """The body of a request to any scheduler.

    Args:
        options: `BatchOptions`, or others with the same names.
        runtime: the path of the bundled runtime on the cluster.
        place: the way to the cluster.
        given: the scheduler's own options that the nodes need.
    """
    interface = options.network_interface
    for_nodes = {
        **given,
        "node_folder": options.node_folder,
        "network_interface": interface if interface != "auto" else None,
    }
    mounts, more, home = options.container_mounts, options.container_options, options.container_home
    return {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        "cluster": place,
        "bundled_runtime": runtime,
        **{name: value for name, value in for_nodes.items() if value},
        **container_body(job, options.container, mounts, more, home),
        "hyperparameters": encoded_hyperparameters(with_source_on_cluster(job, cluster)),
        "script": script.to_text(),
    }


def check(platform: str, job: TrainingJob, why: str = "") -> None:
    """Raises InvalidJob for a job that no options make a job for the platform."""
    if job.entry_point is None:
        raise InvalidJob(
            f"entry_point: the {platform} platform needs a script", hint="Name the script to run."
        )
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(
                f"{field}: {why or f'the {platform} platform starts the script itself'}", hint="Leave it out."
            )
    check_channels(job, platform)


def setup(options: Any) -> Iterator[str]:
    """The user's lines before the job."""
    if options.modules:
        yield f"module load {shlex.join(options.modules)}"
    yield from options.prologue
