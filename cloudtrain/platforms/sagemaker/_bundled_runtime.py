"""The runtime "cloudtrain" on SageMaker: it travels with the job, into any image that has Python 3.9 or newer.

Two channels are added to the user's: one with the runtime, as a zipapp that is uploaded once per version, and one
with the source, so that the image needs no boto3 and the job no network. The container's entrypoint is a line of
shell that starts the zipapp. All else is SageMaker's own: it fetches the channels, syncs the checkpoints, and
uploads model and outputs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cloudtrain.contract import Settings, encode_hyperparameters
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging import RUNTIME_FILE, pack_runtime, runtime_sha256
from cloudtrain.platforms.common.bundled_runtime import DEFAULT_CHECKPOINTS, check_bundled_runtime
from cloudtrain.platforms.common.container_entrypoint import ENTRYPOINT, SOURCE_CHANNEL
from cloudtrain.platforms.common.hyperparameters import runtime_hyperparameters
from cloudtrain.platforms.common.toolkit import model_dir
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL
from cloudtrain.spec import Source, TrainingJob
from cloudtrain.storage import join_uri, split_uri, state_home

Upload = Callable[[Path, str], None]
"""Puts a file at a URI, over what is there."""

LONGEST_GRACE = 110.0
"""Seconds. SageMaker kills a container 120 s after SIGTERM; the runtime needs some of them for its last words."""

MOST_CHANNELS = 20
"""Of one training job (CreateTrainingJob, ``InputDataConfig``)."""

REMEMBERED_SECONDS = 86400.0
"""How long an upload of the runtime is believed in without another look."""

OUR_SOURCES = "/cloudtrain/source"
"""The end of the code location of jobs that name none."""


def with_runtime(body: Mapping[str, Any], job: TrainingJob, region: str) -> dict[str, Any]:
    """``body``, a CreateTrainingJob request, with all that the runtime needs.

    Args:
        body: has what does not depend on the runtime; the user's ``Environment`` and ``InputDataConfig``, for two.
        job: has a name and a packed source.

    Raises:
        InvalidJob: the job wants something that this runtime cannot give.
    """
    _check(job)
    assert job.source, "a job is packed before it is rendered"
    values = {
        **job.hyperparameters,
        **runtime_hyperparameters(job, region),
        **model_dir(job, job.output_path or ""),
    }
    return {
        **body,
        "AlgorithmSpecification": {**body["AlgorithmSpecification"], "ContainerEntrypoint": list(ENTRYPOINT)},
        "HyperParameters": encode_hyperparameters(values),
        "Environment": {**body.get("Environment", {}), **_settings(job).to_environ()},
        "InputDataConfig": [
            *body.get("InputDataConfig", ()),
            _channel(RUNTIME_CHANNEL, f"{join_uri(_location(job), runtime_sha256())}/"),
            _channel(SOURCE_CHANNEL, _prefix(job.source)),
        ],
    }


def upload_runtime(body: Mapping[str, Any], upload: Upload) -> None:
    """Put the runtime where ``body`` says, if it has one and it is not known to be there.

    An upload is remembered for a day, so that most submits make no request for it, and the others one. Raises
    StorageError.
    """
    uri = runtime_uri(body)
    if uri is None:
        return
    mark = _mark(uri)
    if mark.is_file() and time.time() - mark.stat().st_mtime < REMEMBERED_SECONDS:
        return
    path = _cache() / uri.rstrip("/").rpartition("/")[2] / RUNTIME_FILE
    if not path.is_file():  # the cache was emptied since the job was rendered
        pack_runtime(_cache())
    upload(path, join_uri(uri, RUNTIME_FILE))
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def forget_runtime(body: Mapping[str, Any]) -> None:
    """Have the next submit look for the runtime again: a job has not found it."""
    uri = runtime_uri(body)
    if uri is not None:
        _mark(uri).unlink(missing_ok=True)


def runtime_uri(body: Mapping[str, Any]) -> str | None:
    """The folder that the runtime of this request is in; None where the image brings its own."""
    for channel in body.get("InputDataConfig", ()):
        if channel["ChannelName"] == RUNTIME_CHANNEL:
            return str(channel["DataSource"]["S3DataSource"]["S3Uri"])
    return None


def _check(job: TrainingJob) -> None:
    check_bundled_runtime(job)
    if len(job.channels) > MOST_CHANNELS - 2:
        raise InvalidJob(
            f"inputs: {len(job.channels)} channels and the two of cloudtrain's runtime are more than SageMaker's "
            f"{MOST_CHANNELS}",
            hint='Put the data of some under one prefix, for one channel; or use runtime="toolkit", which leaves the '
            "container to its image.",
        )


def _settings(job: TrainingJob) -> Settings:
    assert job.source
    local_path = job.checkpoint_local_path
    return Settings(
        job_name=job.job_name or "",
        # elsewhere than in checkpoints/: the runtime keeps both the same
        checkpoint_uri=Path(local_path).as_uri() if local_path and local_path != DEFAULT_CHECKPOINTS else "",
        source_sha256=job.source.sha256,
        git_commit=job.source.git_commit,
        source_channel=SOURCE_CHANNEL,
        stop_grace=min(job.stop_grace, LONGEST_GRACE),
        hang_timeout=job.hang_timeout or 0.0,
        timeline=job.timeline,
    )


def _location(job: TrainingJob) -> str:
    """The folder of all runtimes: below the user's own code location, next to the sources in ours."""
    assert job.code_location, "a job is resolved before it is rendered"
    location = job.code_location.rstrip("/")
    return join_uri(
        location.removesuffix("/source") if location.endswith(OUR_SOURCES) else location, "runtime"
    )


def _prefix(source: Source) -> str:
    """The folder of an archive of ours; the user's own archive may lie among others."""
    return f"{split_uri(source.uri)[0]}/" if source.sha256 else source.uri


def _channel(name: str, prefix: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": prefix, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


def _cache() -> Path:
    return state_home() / "runtime"


def _mark(uri: str) -> Path:
    """The file whose time is that of the last upload to ``uri``."""
    return _cache() / "uploads" / hashlib.sha256(uri.encode()).hexdigest()
