"""A job as the request that the local supervisor carries out."""

from __future__ import annotations

import sys
from typing import Any

from cloudtrain.contract import Launcher, Settings, encode_hyperparameters
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.local.folder import JobFolder
from cloudtrain.spec import TrainingInput, TrainingJob, is_secret_name, redact
from cloudtrain.storage import join_uri, state_home

OPTIONS = ("python", "master_port")
"""What ``platform_options`` may hold."""

_LAUNCHERS = {"torch_distributed": "torchrun", "processes": "processes"}


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which has a name and a packed source.

    Raises:
        InvalidJob: the job wants something that the local platform has not.
    """
    assert job.job_name, "a job is named before it is rendered"
    _check(job)
    hosts = [f"algo-{number + 1}" for number in range(job.host_count)]
    environment = {**job.environment, **_settings(job).to_environ()}
    body = {
        "job_name": job.job_name,
        "hosts": hosts,
        "instance_type": job.instance_type or "local",
        "python": job.platform_options.get("python", sys.executable),
        "hyperparameters": encode_hyperparameters({**job.hyperparameters, **_platform_hyperparameters(job)}),
        "channels": {name: _channel_config(job, channel) for name, channel in job.channels.items()},
        "environment": redact(environment),
        "max_run": job.max_run,
        "max_retry_attempts": job.max_retry_attempts,
        "stop_grace": job.stop_grace,
    }
    secrets = {name: value for name, value in environment.items() if is_secret_name(name)}
    return Request("local", job.job_name, body, secrets)


def _check(job: TrainingJob) -> None:
    for option in job.platform_options:
        if option not in OPTIONS:
            raise InvalidJob(
                f"platform_options: the local platform has no {option!r}", hint=f"It has {OPTIONS}."
            )
    if job.entry_point is None:
        raise InvalidJob("entry_point: the local platform needs one", hint="Name the script to run.")
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(f"{field}: the local platform has no containers", hint="Leave it out.")
    enabled = job.distribution.enabled if job.distribution else {}
    for kind in enabled:
        if kind not in _LAUNCHERS:
            raise InvalidJob(
                f"distribution: the local platform cannot launch by {kind!r}",
                hint=f"Use one of {', '.join(_LAUNCHERS)}.",
            )
    for name, channel in job.inputs.items():
        if "Pipe" in (channel.input_mode, job.input_mode):
            raise InvalidJob(
                f"inputs.{name}: the local platform has no Pipe mode", hint="Use File or FastFile."
            )
        if channel.s3_data_type != "S3Prefix":
            raise InvalidJob(f"inputs.{name}: the local platform reads S3Prefix, not {channel.s3_data_type}")


def launcher_of(job: TrainingJob) -> Launcher:
    enabled = job.distribution.enabled if job.distribution else {}
    for kind, distribution in enabled.items():
        return Launcher(_LAUNCHERS[kind], getattr(distribution, "processes_per_host", None))
    return Launcher()


def _platform_hyperparameters(job: TrainingJob) -> dict[str, Any]:
    values: dict[str, Any] = {
        "sagemaker_program": job.entry_point,
        "sagemaker_container_log_level": job.container_log_level,
        "sagemaker_job_name": job.job_name,
        "sagemaker_region": "",
    }
    if job.source:
        values["sagemaker_submit_directory"] = job.source.uri
    return {**values, **launcher_of(job).to_hyperparameters()}


def _settings(job: TrainingJob) -> Settings:
    assert job.job_name
    folder = JobFolder.of(job.job_name)
    output = join_uri(job.output_path, job.job_name) if job.output_path else folder.path.as_uri()
    return Settings(
        job_name=job.job_name,
        output_uri=join_uri(output, "output"),
        checkpoint_uri=job.checkpoint_s3_uri or (folder.path / "checkpoints").as_uri(),
        source_sha256=job.source.sha256 if job.source else "",
        compress_output=not job.disable_output_compression,
        channels=tuple((name, channel.s3_data) for name, channel in job.channels.items()),
        rendezvous=str(folder.path / "leader"),
        master_addr="127.0.0.1",
        master_port=job.platform_options.get("master_port", 0),
        events=str(folder.events),
        hosts_on_machine=job.host_count,
        requirements_cache=str(state_home() / "environments"),
        metric_definitions=tuple((item["Name"], item["Regex"]) for item in job.metric_definitions),
        stop_grace=job.stop_grace,
        hang_timeout=job.hang_timeout or 0.0,
    )


def _channel_config(job: TrainingJob, channel: TrainingInput) -> dict[str, Any]:
    """One entry of ``inputdataconfig.json``, as SageMaker writes it."""
    config = {
        "TrainingInputMode": channel.input_mode or job.input_mode,
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapping or "None",
    }
    return {**config, "ContentType": channel.content_type} if channel.content_type else config
