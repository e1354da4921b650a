"""The runtime "toolkit", for images with SageMaker's own toolkit.

As with the SageMaker SDK, hyperparameters specify everything: the script, the location of its source, and how to start
the ranks.
"""

from __future__ import annotations

import json
from typing import Any

from cloudtrain.aws.image_data import instance_family, numbers
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.hyperparameters import model_dir
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
    for field in (
        "hang_after",
        "on_hang",
        "hang_timeout",
        "join_timeout",
        "host_timeout",
        "stop_grace",
        "timeline",
        "samples",
    ):
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
        # the toolkit passes strings on unchanged, and formats only other values
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


_FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
_XLA_SINCE = {"pytorch": (1, 12), "huggingface": (1, 11)}
"""The first versions of PyTorch with which PyTorch XLA starts the ranks. Before, the compiler had its own launchers."""

_TENSORFLOW = (2, 9), (2, 12)
"""The first version of TensorFlow whose image has the compiler, and the first one without it."""

_LEAVE_OUT = (
    "Leave compiler_config out, and call torch.compile or tf.function(jit_compile=True) in the script."
)


def compiler_hyperparameters(job: TrainingJob) -> dict[str, Any]:
    """The toolkit's hyperparameters, as Python values; none without ``compiler_config``.

    Raises:
        InvalidJob: the compiler cannot compile the job.
    """
    config = job.compiler_config
    enabled = job.distribution.enabled if job.distribution else {}
    if config is None:
        if "pytorchxla" in enabled:
            raise InvalidJob(
                "distribution: SageMaker's toolkit launches ranks with 'pytorchxla' only for its compiler",
                hint="Add compiler_config=TrainingCompilerConfig(), or use torch_distributed.",
            )
        return {}
    if problem := _problem(job, [*enabled]):
        raise InvalidJob(f"compiler_config: SageMaker Training Compiler {problem}", hint=_LEAVE_OUT)
    return {
        "sagemaker_training_compiler_enabled": config.enabled,
        "sagemaker_training_compiler_debug_mode": config.debug,
    }


def _problem(job: TrainingJob, distributions: list[str]) -> str | None:
    """Why the compiler cannot compile the job, as the end of a sentence."""
    if job.framework not in ("pytorch", "tensorflow", "huggingface"):
        return f"has no image of {job.framework or 'another framework'}"
    if job.image_uri and job.framework != "tensorflow":
        return "needs AWS's own images, not image_uri"
    if job.instance_groups:
        return "does not support instance_groups"
    for kind in job.instance_types:
        if instance_family(kind) not in _FAMILIES:
            return f"does not run on {kind}, only on {', '.join(_FAMILIES)}"
    if "smdistributed" in distributions:
        return "cannot be combined with smdistributed"
    if job.framework == "tensorflow":
        if "multi_worker_mirrored_strategy" in distributions:
            return "cannot be combined with multi_worker_mirrored_strategy"
        first, end = _TENSORFLOW
        version = job.framework_version
        if version and not first <= numbers(version)[:2] < end:
            return f"is in the images of TensorFlow 2.9 to 2.11, not {version}"
        return None
    return _xla_problem(job, distributions)


def _xla_problem(job: TrainingJob, distributions: list[str]) -> str | None:
    version = job.pytorch_version if job.framework == "huggingface" else job.framework_version
    has_xla = bool(version) and numbers(version or "")[:2] >= _XLA_SINCE[job.framework or ""]
    if "pytorchxla" in distributions:
        return None if has_xla else f"has no distribution pytorchxla with PyTorch {version}"
    if distributions and has_xla:
        return f"has no other distribution than pytorchxla with PyTorch {version}"
    return None
