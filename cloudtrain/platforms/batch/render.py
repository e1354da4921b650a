"""Renders a job as a request to a scheduler, with its batch script.

The script is readable, and ready to be submitted again by hand.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.container_options import container_body
from cloudtrain.platforms.batch.remote_path import quoted
from cloudtrain.platforms.batch.scheduler import Scheduler
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters, launcher_of
from cloudtrain.platforms.common.request import base_body, check_channels, new_request
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG
from cloudtrain.spec import TrainingJob

STEP = "cloudtrain.runtime.batch.step"
PYTHON = "python3"

ONE_LINE = r"^[^\x00-\x1f\x7f]+\Z"
COUNT = Annotated[int, Meta(ge=1)]
WORD = Annotated[str, Meta(min_length=1, pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
"""A part of a directive; it contains no spaces."""
LINE = Annotated[str, Meta(min_length=1, pattern=ONE_LINE)]


class ClusterOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on any cluster with a scheduler: where its files are, and what its script sets up."""

    login: LINE | None = None
    folder: LINE | None = None
    node_folder: LINE | None = None
    modules: list[LINE] = []
    prologue: list[str] = []
    epilogue: list[str] = []
    python: LINE | None = None
    container_mounts: list[LINE] = []
    container_options: list[LINE] = []
    container_home: bool = False
    network_interface: WORD = "auto"
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10


class BatchOptions(ClusterOptions, frozen=True, forbid_unknown_fields=True):
    """The options of the schedulers that `Scheduler` describes.

    The defaults of the queue apply to everything that is not given.
    """

    queue: WORD | None = None
    project: WORD | None = None
    cpus: COUNT | None = None
    gpus: COUNT | None = None
    gpu_type: WORD | None = None
    mem: WORD | None = None
    directives: list[LINE] = []
    container: Literal["none", "apptainer", "charliecloud", "enroot"] | None = None


def render(scheduler: Scheduler, job: TrainingJob, options: BatchOptions, cluster: Cluster) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises InvalidJob if the platform cannot run the job.
    """
    check(scheduler.platform, job)
    assert job.job_name
    folder = cluster.job_folder(job.job_name)
    script = Script(
        job.job_name,
        scheduler.lines(job, options),
        [f"exec >>{shlex.quote(f'{folder}/{SUPERVISOR_LOG}')} 2>&1", *setup(options)],
        step_command(options, cluster, STEP, folder),
        options.epilogue,
        submit=scheduler.by_hand,
        title_last=scheduler.title_last,
    )
    start = getattr(options, "start", "auto")
    given = {"start": start if start != "auto" else None}
    return batch_request(scheduler.platform, job, options, options.container, cluster, given, script)


def step_command(options: ClusterOptions, cluster: Cluster, step: str, folder: str) -> list[str]:
    """The command that runs a batch step of the bundled runtime."""
    return [options.python or PYTHON, cluster.runtime_file(runtime_sha256()), step, folder]


def batch_request(
    platform: str,
    job: TrainingJob,
    options: ClusterOptions,
    engine: str | None,
    cluster: Cluster,
    given: Mapping[str, Any],
    script: Script,
    **place: Any,
) -> Request:
    """The request to any scheduler.

    Args:
        engine: the option ``container``.
        given: the scheduler's own options that the nodes need.
        place: the scheduler's own fields of ``cluster`` in the body.
    """
    interface = options.network_interface
    for_nodes = {
        **given,
        "node_folder": options.node_folder,
        "network_interface": interface if interface != "auto" else None,
    }
    way = {"folder": cluster.folder, "login": cluster.login, **place}
    mounts, more, home = options.container_mounts, options.container_options, options.container_home
    body = {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        "cluster": {name: value for name, value in way.items() if value},
        "bundled_runtime": script.command[1],
        **{name: value for name, value in for_nodes.items() if value},
        **container_body(job, engine, mounts, more, home),
        "hyperparameters": encoded_hyperparameters(with_source_on_cluster(job, cluster)),
        "script": script.to_text(),
    }
    return new_request(platform, job, body)


def check(platform: str, job: TrainingJob, why: str = "") -> None:
    """Raises InvalidJob for a job that the platform cannot run, with any options."""
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


def setup(options: ClusterOptions) -> Iterator[str]:
    """The user's lines that run before the job."""
    if options.modules:
        yield f"module load {shlex.join(options.modules)}"
    yield from options.prologue


def ranks_on_node(job: TrainingJob, gpus: int | None) -> int:
    """The number of ranks on each node, as far as it is known here: one for each of ``gpus`` unless the job sets it.

    Raises InvalidJob, as `launcher_of` does.
    """
    return launcher_of(job).processes_per_host or gpus or 1


def with_source_on_cluster(job: TrainingJob, cluster: Cluster) -> TrainingJob:
    """``job`` with the URI that its source will have. A source that was packed on this machine is copied there."""
    source = job.source
    if not source or not source.sha256 or not source.uri.startswith("file://"):
        return job
    uri = PurePosixPath(cluster.source_file(source.sha256)).as_uri()
    return msgspec.structs.replace(job, source=msgspec.structs.replace(source, uri=uri))


@dataclass(frozen=True)
class Script:
    """The parts of a batch script.

    Attributes:
        job_name: the job that it runs.
        directives: lines in order, with comments.
        setup: lines of the user before the job: modules, and the prologue.
        command: runs the job. The path of the program may contain variables and ``~/``, which the node expands.
        submit: the command that submits it by hand, in its folder.
        title_last: whether the directives come first, because Cobalt stops reading them at the first other line.
        title: the first comment, if it is not the script of one job.
        epilogue: lines of the user after the job, which may read its exit code from ``$status``.
    """

    job_name: str
    directives: Sequence[str]
    setup: Sequence[str]
    command: Sequence[str]
    epilogue: Sequence[str] = ()
    title: str = ""
    submit: str = "sbatch job.sh"
    title_last: bool = False

    def to_text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "#!/bin/bash"
        title = (
            self.title
            or f"# The job {self.job_name} of cloudtrain. To submit it again by hand: {self.submit}"
        )
        yield from [] if self.title_last else [title]
        yield from self.directives
        yield from [title] if self.title_last else []
        yield ""
        yield "trap '' USR1  # a notice that comes before the job has begun does not end it"
        yield from self.setup
        yield from _runtime_check(self.command[1])
        command = f"{quoted(self.command[0])} {shlex.join(self.command[1:])}"
        if not self.epilogue:
            yield f"exec {command}"
            return
        yield from with_epilogue(command, self.epilogue)


def _runtime_check(runtime: str) -> Iterator[str]:
    """Ends the script unless the runtime, which all jobs share, has the hash that its folder is named after."""
    path, digest = shlex.quote(runtime), posixpath.basename(posixpath.dirname(runtime))
    yield f'[ "$(sha256sum < {path} | head -c 64)" = {digest} ] || {{'
    yield f'echo {path} "is missing or was changed: remove it, and submit the job again" >&2; exit 1; }}'


def with_epilogue(command: str, epilogue: Iterable[str]) -> Iterator[str]:
    """Lines of bash that run ``command``, pass signals on to it, then run ``epilogue``, and exit as the command did."""
    yield "trap 'kill -TERM \"${step:-$!}\"' TERM  # bash would wait for the step before it handles a signal"
    yield "trap 'kill -USR1 \"${step:-$!}\"' USR1"
    yield f"{command} &"
    yield "step=$!"
    yield 'wait "$step"; status=$?'
    yield 'while kill -0 "$step" 2>/dev/null; do wait "$step"; status=$?; done'
    # bash keeps the exit code of a step that has ended
    yield (
        'wait "$step" 2>/dev/null; last=$?; [ "$last" = 127 ] || status=$last'
        "  # a signal may have interrupted wait"
    )
    yield from epilogue
    yield 'exit "$status"'
