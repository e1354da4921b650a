"""Fills in what a job on Kubernetes leaves to this machine: its context, its namespace, its folders."""

from __future__ import annotations

import msgspec

from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.check import check
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri


def resolve(job: TrainingJob) -> TrainingJob:
    """``job`` with its context, its namespace and its checkpoints. Raises InvalidJob, PlatformError."""
    options = KubernetesOptions.of(job)
    check(job, options)
    assert job.job_name, "a job is named before it is resolved"
    checkpoints = job.checkpoint_s3_uri
    if job.output_path and not checkpoints:
        checkpoints = join_uri(job.output_path, job.job_name, "checkpoints")
    return msgspec.structs.replace(
        job, checkpoint_s3_uri=checkpoints, code_location=_code_location(job, options)
    )


def _code_location(job: TrainingJob, options: KubernetesOptions) -> str | None:
    """Where the source goes before the pods fetch it; None if a ConfigMap delivers it."""
    if options.delivery == "configmap":
        return None
    if options.delivery == "s3" and job.output_path and not job.code_location:
        return join_uri(job.output_path, "cloudtrain", "source")
    return job.code_location
