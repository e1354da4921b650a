"""The runtime "toolkit": the request that the SageMaker SDK sends, for images that have SageMaker's own toolkit.

The toolkit is told everything in hyperparameters: the script, where its source is, how to start the ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cloudtrain.contract import Settings
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.toolkit_distribution import distribution_hyperparameters
from cloudtrain.platforms.sagemaker._inputs import channel_config
from cloudtrain.spec import TrainingInput, TrainingJob
from cloudtrain.storage import join_uri

CODE_CHANNEL = "code"
"""The channel of the source where the container has no network."""

CODE_PATH = f"/opt/ml/input/data/{CODE_CHANNEL}/sourcedir.tar.gz"

_OWN = Settings(git_commit="x").to_environ()
"""A variable that every job of ours has, and that means nothing to the toolkit."""


def with_toolkit(body: dict[str, Any], job: TrainingJob, region: str) -> dict[str, Any]:
    """``body`` with what the toolkit needs.

    Raises:
        InvalidJob: the job wants something that only cloudtrain's runtime can give.
    """
    _check(job)
    body = dict(body)
    values = _encode(job)
    if job.entry_point is not None:
        assert job.source, "a job is packed before it is rendered"
        place = job.source.uri
        if job.enable_network_isolation:
            place = CODE_PATH
            code = channel_config(CODE_CHANNEL, TrainingInput(job.source.uri))
            body["InputDataConfig"] = [*body.get("InputDataConfig", ()), code]
        values |= _as_json(
            {
                "sagemaker_submit_directory": place,
                "sagemaker_program": job.entry_point,
                "sagemaker_container_log_level": job.container_log_level,
                "sagemaker_job_name": job.job_name,
                "sagemaker_region": region,
            }
        )
    values |= _as_json({**distribution_hyperparameters(job), **model_dir(job, body)})
    environment = {name: value for name, value in body.pop("Environment", {}).items() if name not in _OWN}
    return {
        **body,
        **({"HyperParameters": values} if values else {}),
        **({"Environment": environment} if environment else {}),
    }


def _check(job: TrainingJob) -> None:
    for field in ("hang_timeout", "stop_grace", "timeline"):
        if getattr(job, field) != getattr(TrainingJob(), field):
            raise InvalidJob(
                f"{field}: SageMaker's toolkit has no such thing",
                hint='Use runtime="cloudtrain", or leave it out.',
            )
    if job.enable_network_isolation and CODE_CHANNEL in job.channels:
        raise InvalidJob(
            f"inputs.{CODE_CHANNEL}: with enable_network_isolation the source comes in a channel of this name",
            hint="Give the input another name.",
        )


def _encode(job: TrainingJob) -> dict[str, str]:
    """The user's hyperparameters: JSON for a script; for the program in an image, strings as they are.

    This is the SDK's rule, but for lists and dicts, which it gives to an image as Python writes them.
    """
    if job.framework or job.source_dir:
        return _as_json(job.hyperparameters)
    return {
        key: json.dumps(value) if isinstance(value, (list, dict)) else str(value)
        for key, value in job.hyperparameters.items()
    }


def model_dir(job: TrainingJob, body: Mapping[str, Any]) -> dict[str, str]:
    """TensorFlow's place for models: of the job's own in S3, but on the host's disk for ranks that MPI started."""
    if job.framework != "tensorflow" or job.model_dir is False:
        return {}
    if job.model_dir:
        return {"model_dir": job.model_dir}
    if job.distribution and "mpi" in job.distribution.enabled:
        return {"model_dir": "/opt/ml/model"}
    return {"model_dir": join_uri(body["OutputDataConfig"]["S3OutputPath"], job.job_name or "", "model")}


def _as_json(values: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}
