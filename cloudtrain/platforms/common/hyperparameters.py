"""The hyperparameters that describe a job to cloudtrain's runtime, the same on every platform."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cloudtrain.contract import Launcher, encode_hyperparameters
from cloudtrain.contract.agent import preset_command
from cloudtrain.contract.hyperparameters import ENCODING, ENCODINGS
from cloudtrain.contract.tf_config import LAUNCHERS as TENSORFLOW
from cloudtrain.contract.tf_config import MIRRORED, PARAMETER_SERVER
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.model_dir import model_dir
from cloudtrain.spec import Agent, TrainingJob

LAUNCHERS = {
    "torch_distributed": "torchrun",
    "processes": "processes",
    "mpi": "mpirun",
    "horovod": "horovod",
    "agent": "agent",
    "multi_worker_mirrored_strategy": MIRRORED,
    "parameter_server": PARAMETER_SERVER,
}
"""The runtime's launchers, by the distribution that asks for them."""

_OPTIONS = {field.name for field in fields(Launcher)} - {"name"}


def launcher_of(job: TrainingJob) -> Launcher:
    """Raises InvalidJob for a distribution that cloudtrain's runtime has no launcher for."""
    enabled = job.distribution.enabled if job.distribution else {}
    for kind in enabled:
        if kind not in LAUNCHERS:
            raise InvalidJob(
                f"distribution: cloudtrain's runtime cannot launch ranks with {kind!r}",
                hint=f'Use one of {", ".join(LAUNCHERS)}; or, on SageMaker, an image of AWS with runtime="toolkit".',
            )
        if (
            LAUNCHERS[kind] in TENSORFLOW
            and job.framework not in (None, "tensorflow")
            and not job.tensorflow_version
        ):
            raise InvalidJob(
                f"distribution.{kind}: it is TensorFlow's, but the framework is {job.framework}",
                hint='Use processes; or, on SageMaker, an image of AWS that has it with runtime="toolkit".',
            )
    for kind, distribution in enabled.items():
        if isinstance(distribution, Agent):
            command = distribution.command
            if distribution.preset:
                command = preset_command(distribution.preset, distribution.options)
            return Launcher(
                "agent",
                processes_per_host=distribution.processes_per_host,
                agent_command=command,
                agent_preset=distribution.preset or "",
            )
        options = {name: getattr(distribution, name) for name in _OPTIONS if hasattr(distribution, name)}
        return Launcher(LAUNCHERS[kind], **options)
    return Launcher()


def encoded_hyperparameters(job: TrainingJob, region: str = "", output_path: str = "") -> dict[str, str]:
    """All hyperparameters for cloudtrain's runtime: the user's, and those of the platform.

    Args:
        output_path: where `model_dir` may be by default.

    Raises:
        InvalidJob: as `launcher_of` does.
    """
    values = {**job.hyperparameters, **runtime_hyperparameters(job, region), **model_dir(job, output_path)}
    return encode_hyperparameters(values)


def runtime_hyperparameters(job: TrainingJob, region: str = "") -> dict[str, Any]:
    """The platform's ``sagemaker_*``, as Python values. Raises InvalidJob, as `launcher_of` does."""
    values: dict[str, Any] = {
        "sagemaker_program": job.entry_point,
        "sagemaker_container_log_level": job.container_log_level,
        "sagemaker_job_name": job.job_name,
        "sagemaker_region": region,
        **launcher_of(job).to_hyperparameters(),
    }
    if job.source:
        values["sagemaker_submit_directory"] = job.source.uri
    if job.distribution and job.distribution.instance_groups:
        values["sagemaker_distribution_instance_groups"] = job.distribution.instance_groups
    if job.hyperparameter_encoding != ENCODINGS[0]:
        values[ENCODING] = job.hyperparameter_encoding
    return values
