"""The runtime "toolkit", for images with SageMaker's own toolkit.

As with the SageMaker SDK, hyperparameters specify everything: the script, the location of its source, and how to start
the ranks.
"""

from __future__ import annotations

import json
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.hyperparameters import model_dir
from cloudtrain.platforms.common.toolkit_compiler import compiler_hyperparameters
from cloudtrain.platforms.common.toolkit_distribution import distribution_hyperparameters
from cloudtrain.spec import TrainingJob

CODE_CHANNEL = "code"
"""The channel of the source for containers without a network."""

CODE_PATH = f"/opt/ml/input/data/{CODE_CHANNEL}/sourcedir.tar.gz"


def toolkit_hyperparameters(job: TrainingJob, place: str, output_path: str, region: str) -> dict[str, str]:
    """The hyperparameters of ``job``, each encoded, with those that the toolkit reads.

    Args:
        place: the location of the source: a URI, or a path in the container.
        output_path: the URI below which the job stores its outputs.

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
    compiler = compiler_hyperparameters(job)
    return values | _as_json({**distribution_hyperparameters(job), **model_dir(job, output_path), **compiler})


def _check(job: TrainingJob) -> None:
    for field in ("hang_timeout", "join_timeout", "host_timeout", "stop_grace", "timeline"):
        if getattr(job, field) != getattr(TrainingJob(), field):
            raise InvalidJob(
                f"{field}: SageMaker's toolkit does not support it",
                hint='Use runtime="cloudtrain", or leave it out.',
            )
    if job.arguments:
        raise InvalidJob(
            "arguments: SageMaker's toolkit passes only hyperparameters to the script: as --name value, sorted by name"
            if job.entry_point
            else "arguments: the job has no script, and starts the image's own program",
            hint='Use runtime="cloudtrain", or set hyperparameters instead.'
            if job.entry_point
            else "Name the script as entry_point, or set container_arguments instead.",
        )
    if job.enable_network_isolation and CODE_CHANNEL in job.channels:
        raise InvalidJob(
            f"inputs.{CODE_CHANNEL}: with enable_network_isolation, a channel of this name has the source",
            hint="Rename the channel.",
        )


def _encode(job: TrainingJob) -> dict[str, str]:
    """The user's hyperparameters: as JSON for a script; for an image's own program, strings are unchanged.

    The SDK follows the same rule, except that it passes lists and dicts to an image in Python's syntax.
    """
    if job.hyperparameter_encoding == "json" and job.entry_point:
        # the toolkit spells only values that are not strings
        texts = job.hyperparameters.items()
        return _as_json({key: one if isinstance(one, str) else json.dumps(one) for key, one in texts})
    if job.framework or job.source_dir:
        return _as_json(job.hyperparameters)
    return {
        key: json.dumps(value) if isinstance(value, (list, dict)) else str(value)
        for key, value in job.hyperparameters.items()
    }


def _as_json(values: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}
