"""The part of a request that is the same on all supervised platforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.contract import Settings
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.channels import channel_entries
from cloudtrain.spec import TrainingJob, is_secret
from cloudtrain.storage import join_uri


def new_request(platform: str, job: TrainingJob, body: Mapping[str, Any]) -> Request:
    """The request with ``body``. Likely secrets in the job's environment are moved to ``secrets``.

    The values of the job's own ``secrets`` are added where it is submitted: rendering reads no environment.
    """
    assert job.job_name, "a job is named before it is rendered"
    secrets = {name: value for name, value in job.environment.items() if is_secret(name, value)}
    return Request(platform, job.job_name, body, secrets)


def base_body(job: TrainingJob, *, master_port: int, max_preemptions: int) -> dict[str, Any]:
    """The fields that every supervised platform needs.

    ``settings`` are the result of `contract.Settings.to_dict` for the job. Settings that depend on the machine of a
    host, such as its name, its folders or the leader's address, are added where the host's process starts.
    """
    assert job.output_path and job.checkpoint_s3_uri, "a job is resolved before it is rendered"
    body: dict[str, Any] = {
        "job_name": job.job_name,
        "host_count": job.host_count,
        "instance_type": job.instance_types[0] if job.instance_types and not job.instance_groups else "local",
        "channels": channel_entries(job),
        "settings": base_settings(job, master_port).to_dict(),
        "environment": job.shown_environment,
        "max_retry_attempts": job.max_retry_attempts,
        "max_preemptions": max_preemptions,
    }
    if job.max_run is not None:
        body["max_run"] = job.max_run
    if job.arguments:
        body["arguments"] = job.arguments
    if job.instance_groups:
        body["instance_groups"] = [
            {
                "instance_group_name": group.instance_group_name,
                "instance_type": group.instance_type,
                "instance_count": group.instance_count,
            }
            for group in job.instance_groups
        ]
    return body


def base_settings(job: TrainingJob, master_port: int) -> Settings:
    """The settings of a job that do not depend on the platform. Without an ``output_path``, nothing is uploaded."""
    assert job.job_name, "a job is named before it is rendered"
    return Settings(
        job_name=job.job_name,
        output_uri=join_uri(job.output_path, job.job_name, "output") if job.output_path else "",
        checkpoint_uri=job.checkpoint_s3_uri or "",
        source_sha256=job.source.sha256 if job.source else "",
        git_commit=job.source.git_commit if job.source else "",
        max_source_size=job.source_limits.size,
        max_source_files=job.source_limits.files,
        compress_output=not job.disable_output_compression,
        master_port=master_port,
        hidden_variables=",".join(job.secrets),
        metric_definitions=tuple((item["Name"], item["Regex"]) for item in job.metric_definitions),
        stop_grace=job.stop_grace,
        hang_timeout=job.hang_timeout or 0.0,
        join_timeout=job.join_timeout,
        host_timeout=job.host_timeout,
        timeline=job.timeline,
    )
