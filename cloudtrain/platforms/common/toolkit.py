"""The runtime "toolkit": what images with SageMaker's own toolkit need.

Everything comes in hyperparameters, as from the SageMaker SDK: the script, where its source is, how to start the
ranks.
"""

from __future__ import annotations

import json
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.toolkit_distribution import distribution_hyperparameters
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri

CODE_CHANNEL = "code"
"""The channel of the source where the container has no network."""

CODE_PATH = f"/opt/ml/input/data/{CODE_CHANNEL}/sourcedir.tar.gz"


def toolkit_hyperparameters(job: TrainingJob, place: str, output_path: str, region: str) -> dict[str, str]:
    """The hyperparameters of ``job``, each encoded, with those that the toolkit reads.

    Args:
        place: where the toolkit finds the source: a URI, or a path in the container.
        output_path: the URI below which the job leaves its outputs.

    Raises:
        InvalidJob: only cloudtrain's runtime can run the job.
    """
    _check(job)
    values = _encode(job)
    if job.entry_point is not None:
        values |= _as_json(
            {
                "sagemaker_submit_directory": place,
                "sagemaker_program": job.entry_point,
                "sagemaker_container_log_level": job.container_log_level,
                "sagemaker_job_name": job.job_name,
                "sagemaker_region": region,
            }
        )
    return values | _as_json({**distribution_hyperparameters(job), **model_dir(job, output_path)})


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


def model_dir(job: TrainingJob, output_path: str) -> dict[str, str]:
    """TensorFlow's place for models: of the job's own in S3, but on the host's disk for ranks that MPI started."""
    if job.framework != "tensorflow" or job.model_dir is False:
        return {}
    if job.model_dir:
        return {"model_dir": job.model_dir}
    if job.distribution and "mpi" in job.distribution.enabled:
        return {"model_dir": "/opt/ml/model"}
    return {"model_dir": join_uri(output_path, job.job_name or "", "model")}


def _as_json(values: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}
