"""SageMaker Training Compiler: the hyperparameters that enable it, and the jobs that it can compile."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.image_data import numbers
from cloudtrain.aws.registry import instance_family
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

_FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
_XLA_SINCE = {"pytorch": (1, 12), "huggingface": (1, 11)}
"""The first versions of PyTorch whose ranks PyTorch XLA starts. Before, the compiler has its own launchers."""

_TENSORFLOW = (2, 9), (2, 12)
"""The first version of TensorFlow whose image has the compiler, and the first without."""

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
