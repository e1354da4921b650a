"""The runtime "cloudtrain" on SageMaker. It is bundled with the job, and needs only Python 3.9 or newer in the image.

A job gets two additional channels: the runtime, a zip archive that is uploaded once per version, and the source. With
several hosts, a third contains the job secret. The image therefore needs no boto3, and the job needs no network. The
container's entrypoint is a shell command that starts the archive. SageMaker itself fetches the channels, syncs
checkpoints, and uploads the model and the outputs.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from cloudtrain.contract import Settings, encode_arguments
from cloudtrain.contract.arguments import is_argument_piece
from cloudtrain.cost.terms import terms_text
from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import fresh_secret
from cloudtrain.packaging import RUNTIME_FILE, pack_runtime, runtime_sha256
from cloudtrain.platforms.common.bundled_runtime import (
    DEFAULT_CHECKPOINTS,
    ENTRYPOINT,
    SOURCE_CHANNEL,
    check_bundled_runtime,
    shared_folder,
)
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import settings_of
from cloudtrain.platforms.sagemaker.metrics import after_prefixes
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL, SECRET_CHANNEL
from cloudtrain.runtime.job_secret import SECRET_FILE
from cloudtrain.spec import Source, TrainingJob
from cloudtrain.storage import join_uri, split_uri, state_home

Upload = Callable[[Path, str], None]
"""Uploads a file to a URI. Replaces an existing object."""

LONGEST_GRACE = 110.0
"""In seconds. SageMaker kills a container 120 s after SIGTERM; the runtime needs a few seconds to report."""

MOST_HYPERPARAMETERS = 100
"""The limit of a training job (CreateTrainingJob, ``HyperParameters``)."""

LONGEST_VALUE = 2500
"""In characters: the limit of a hyperparameter (CreateTrainingJob, ``HyperParameterValue``)."""

MOST_CHANNELS = 20
"""The limit of a training job (CreateTrainingJob, ``InputDataConfig``)."""

REMEMBERED_SECONDS = 86400.0
"""How long an uploaded runtime is assumed to exist without a check."""


def with_runtime(body: Mapping[str, Any], job: TrainingJob, region: str) -> dict[str, Any]:
    """``body``, a CreateTrainingJob request, with the fields that the runtime needs.

    Args:
        body: the fields that do not depend on the runtime, such as the user's ``Environment`` and ``InputDataConfig``.
        job: must have a name and a packed source.

    Raises:
        InvalidJob: the job uses a feature that this runtime does not support.
    """
    _check(job)
    assert job.source, "a job is packed before it is rendered"
    values = {
        **encoded_hyperparameters(job, region, job.output_path or ""),
        **encode_arguments(job.arguments),
    }
    _check_limits(values)
    metrics = {"MetricDefinitions": after_prefixes(job.metric_definitions)} if job.metric_definitions else {}
    algorithm = {**body["AlgorithmSpecification"], **metrics, "ContainerEntrypoint": list(ENTRYPOINT)}
    return {
        **body,
        "AlgorithmSpecification": algorithm,
        "HyperParameters": values,
        "Environment": {**body.get("Environment", {}), **_settings(job).to_environ()},
        "InputDataConfig": [
            *body.get("InputDataConfig", ()),
            _channel(RUNTIME_CHANNEL, f"{join_uri(_location(job), 'runtime', runtime_sha256())}/"),
            _channel(SOURCE_CHANNEL, _prefix(job.source)),
            *_secret_channel(job),
        ],
    }


def upload_runtime(body: Mapping[str, Any], upload: Upload) -> None:
    """Upload the runtime to the URI in ``body``, unless the request uses none or the runtime was uploaded before.

    An upload is recorded for a day, so that most submissions need no request for it. Raises StorageError.
    """
    uri = runtime_uri(body)
    if uri is None:
        return
    mark = _mark(body)
    if mark.is_file() and time.time() - mark.stat().st_mtime < REMEMBERED_SECONDS:
        return
    path = _cache() / uri.rstrip("/").rpartition("/")[2] / RUNTIME_FILE
    if not path.is_file():  # the cache was cleared after the job was rendered
        pack_runtime(_cache())
    upload(path, join_uri(uri, RUNTIME_FILE))
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def forget_runtime(body: Mapping[str, Any]) -> None:
    """Make the next submission upload the runtime again, because a job did not find it."""
    if runtime_uri(body) is not None:
        _mark(body).unlink(missing_ok=True)


def runtime_uri(body: Mapping[str, Any]) -> str | None:
    """The URI of the folder with the request's runtime; None if it uses the image's program."""
    for channel in body.get("InputDataConfig", ()):
        if channel["ChannelName"] == RUNTIME_CHANNEL:
            return str(channel["DataSource"]["S3DataSource"]["S3Uri"])
    return None


def _check(job: TrainingJob) -> None:
    if job.on_hang == "restart":
        raise InvalidJob(
            "on_hang: SageMaker restarts a job only after an error of AWS", hint="Choose notice or stop."
        )
    check_bundled_runtime(job)
    own, word = (2, "two") if max(job.host_counts) == 1 else (3, "three")
    if len(job.channels) + own > MOST_CHANNELS:
        raise InvalidJob(
            f"inputs: {len(job.channels)} channels and the {word} of cloudtrain's runtime exceed SageMaker's "
            f"limit of {MOST_CHANNELS}",
            hint='Combine the data of several channels under one prefix, or use runtime="toolkit".',
        )


def _check_limits(values: Mapping[str, str]) -> None:
    """Raises InvalidJob for hyperparameters that SageMaker does not accept. They include the arguments, in pieces."""
    for name, text in values.items():
        if len(text) > LONGEST_VALUE:
            raise InvalidJob(
                f"hyperparameters.{name}: has {len(text):,} characters, and SageMaker accepts {LONGEST_VALUE:,}",
                hint=f"Pass it in arguments, which may be longer: ['--{name}', '...']. Or store it in a file.",
            )
    if len(values) > MOST_HYPERPARAMETERS:
        pieces = sum(is_argument_piece(name) for name in values)
        most = max(0, MOST_HYPERPARAMETERS - len(values) + pieces) * LONGEST_VALUE
        raise InvalidJob(
            f"arguments: are too long for SageMaker, which accepts {most:,} characters of them here"
            if pieces
            else f"hyperparameters: there are {len(values)}, and SageMaker accepts {MOST_HYPERPARAMETERS}",
            hint="Store them in a file in source_dir, or in an input channel.",
        )


def _settings(job: TrainingJob) -> Settings:
    local_path = job.checkpoint_local_path if job.checkpoint_s3_uri else None
    return settings_of(
        job,
        # if the folder is not checkpoints/, the runtime keeps both in sync
        checkpoint_uri=PurePosixPath(local_path).as_uri()
        if local_path and local_path != DEFAULT_CHECKPOINTS
        else "",
        cost_terms=terms_text(job.cost_terms),
        source_channel=SOURCE_CHANNEL,
        stop_grace=min(job.stop_grace, LONGEST_GRACE),
        event_lines=True,
        opaque_event_lines=True,  # the job's metric expressions must not match them
    )


def _location(job: TrainingJob) -> str:
    assert job.code_location, "a job is resolved before it is rendered"
    return shared_folder(job.code_location)


def _secret_channel(job: TrainingJob) -> list[dict[str, Any]]:
    """The channel of the job secret, which only a job with several hosts needs."""
    if max(job.host_counts) == 1:
        return []
    assert job.job_name, "a job is named before it is rendered"
    return [_channel(SECRET_CHANNEL, f"{join_uri(_location(job), 'secrets', job.job_name)}/")]


def _prefix(source: Source) -> str:
    """The folder of an archive that cloudtrain packed; the archive's own URI for one that the user packed."""
    return f"{split_uri(source.uri)[0]}/" if source.sha256 else source.uri


def _channel(name: str, prefix: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": prefix, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


def _cache() -> Path:
    return state_home() / "runtime"


def _mark(body: Mapping[str, Any]) -> Path:
    """The file whose modification time records the last upload of the runtime with the KMS key of the outputs."""
    key = body.get("OutputDataConfig", {}).get("KmsKeyId", "")
    text = f"{runtime_uri(body)} {key}".strip()
    return _cache() / "uploads" / hashlib.sha256(text.encode()).hexdigest()


def upload_secret(body: Mapping[str, Any], upload: Callable[[Path, str], None]) -> None:
    """Create and upload the secret of the job that ``body`` requests, if it needs one. Raises StorageError.

    The request contains only its URI, because the environment and the hyperparameters of a job would show the secret
    to everyone who may call DescribeTrainingJob.

    Args:
        upload: must keep an existing object, because a repeated request must not change the secret of a running job.
    """
    for channel in body.get("InputDataConfig", ()):
        if channel["ChannelName"] == SECRET_CHANNEL:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, SECRET_FILE)
                path.write_text(fresh_secret())
                upload(path, join_uri(channel["DataSource"]["S3DataSource"]["S3Uri"], SECRET_FILE))
