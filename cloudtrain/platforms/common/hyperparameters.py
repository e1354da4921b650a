"""The hyperparameters that describe a job to cloudtrain's runtime, the same on every platform."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cloudtrain.contract import Launcher, encode_hyperparameters
from cloudtrain.contract.agent import preset_command
from cloudtrain.contract.frameworks import MIRRORED, PARAMETER_SERVER, TENSORFLOW_LAUNCHERS as TENSORFLOW
from cloudtrain.contract.hyperparameters import ENCODING, ENCODINGS
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Agent, TrainingJob
from cloudtrain.storage import join_uri

MODEL_FOLDER = f"{DEFAULT_BASE}/model"
"""The folder of the model in a container. On a host with another base folder, the runtime replaces ``/opt/ml``."""


def model_dir(job: TrainingJob, output_path: str = "") -> dict[str, str]:
    """The job's ``model_dir``, or a default for TensorFlow unless the user's hyperparameters set it.

    The default is that of the SageMaker SDK: the job's prefix in S3, or the host's disk for ranks that MPI starts.

    Args:
        output_path: the URI below which the job stores its outputs. Unless it is in S3, the default is on the disk.
    """
    if job.model_dir:
        return {"model_dir": job.model_dir}
    if job.framework != "tensorflow" or job.model_dir is False or "model_dir" in job.hyperparameters:
        return {}
    if not output_path.startswith("s3://") or (job.distribution and "mpi" in job.distribution.enabled):
        return {"model_dir": MODEL_FOLDER}
    return {"model_dir": join_uri(output_path, job.job_name or "", "model")}


TENSORFLOW_LAUNCHERS = {
    "torch_distributed": "torchrun",
    "processes": "processes",
    "mpi": "mpirun",
    "horovod": "horovod",
    "agent": "agent",
    "multi_worker_mirrored_strategy": MIRRORED,
    "parameter_server": PARAMETER_SERVER,
}
"""The runtime's launchers, by the distribution that uses them."""

_OPTIONS = {field.name for field in fields(Launcher)} - {"name"}


def launcher_of(job: TrainingJob) -> Launcher:
    """Raises InvalidJob for a distribution that cloudtrain's runtime has no launcher for."""
    enabled = job.distribution.enabled if job.distribution else {}
    for kind in enabled:
        if kind not in TENSORFLOW_LAUNCHERS:
            raise InvalidJob(
                f"distribution: cloudtrain's runtime cannot launch ranks with {kind!r}",
                hint=f"Use one of {', '.join(TENSORFLOW_LAUNCHERS)}; or, on SageMaker, an image of AWS with"
                ' runtime="toolkit".',
            )
        if (
            TENSORFLOW_LAUNCHERS[kind] in TENSORFLOW
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
        return Launcher(TENSORFLOW_LAUNCHERS[kind], **options)
    return Launcher()


def encoded_hyperparameters(job: TrainingJob, region: str = "", output_path: str = "") -> dict[str, str]:
    """All hyperparameters for cloudtrain's runtime: the user's, and those of the platform.

    Args:
        output_path: see `model_dir`.

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
