"""Fills in what a job on Kubernetes leaves to this machine: its context, its namespace, its folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.profile import with_profile
from cloudtrain.platforms.kubernetes.render.check import check
from cloudtrain.platforms.kubernetes.render.choice import Choice, choose
from cloudtrain.platforms.kubernetes.render.jobset import host_names
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri, uri_scheme

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api


def resolve(job: TrainingJob, connect: Callable[[str, str], Api]) -> TrainingJob:
    """``job`` with its context, its namespace, its rendering and its checkpoints. Raises InvalidJob, PlatformError.

    Args:
        connect: the API of a context and a namespace; empty for those that are current.
    """
    job = with_profile(job)
    options = KubernetesOptions.of(job)
    check(job, options)
    assert job.job_name, "a job is named before it is resolved"
    checkpoints = job.checkpoint_s3_uri
    if job.output_path and not checkpoints:
        checkpoints = join_uri(job.output_path, job.job_name, "checkpoints")
    return msgspec.structs.replace(
        job,
        checkpoint_s3_uri=checkpoints,
        code_location=_code_location(job, options),
        platform_options={**job.platform_options, **_where(job, options, connect)},
    )


def _where(
    job: TrainingJob, options: KubernetesOptions, connect: Callable[[str, str], Api]
) -> dict[str, Any]:
    """The context, the namespace and the rendering.

    Without a kubeconfig, or if the cluster does not answer, a job can be rendered all the same, for kubectl.
    """
    try:
        api = connect(options.context or "", options.namespace or "")
    except PlatformError:
        if options.context:
            raise
        return _as(choose(options.rendering, None))
    choice = choose(options.rendering, api)
    if options.rendering == "auto" and choice.rendering == "jobset" and not _has_room(job):
        choice = Choice("job", "the cluster has JobSet, but the job's name is too long for its pods")
    return {"context": api.context, "namespace": api.namespace, **_as(choice)}


def _has_room(job: TrainingJob) -> bool:
    """Whether the pods of a JobSet could have names that begin with that of the job."""
    try:
        host_names(job)
    except InvalidJob:
        return False
    return True


def _as(choice: Choice) -> dict[str, str]:
    return {"rendering": choice.rendering, "rendering_reason": choice.why}


def _code_location(job: TrainingJob, options: KubernetesOptions) -> str | None:
    """Where the source goes before the pods fetch it; None if a ConfigMap delivers it. Raises InvalidJob."""
    location = job.code_location
    if location is None and job.output_path and uri_scheme(job.output_path) == "s3":
        location = join_uri(job.output_path, "cloudtrain", "source")
    if options.delivery == "configmap" or (options.delivery == "auto" and location is None):
        return None
    if location is None or uri_scheme(location) != "s3":
        raise InvalidJob(
            f"code_location: pods cannot download the source from {location or 'nowhere'}",
            hint="Set code_location or output_path to an s3:// URI, or platform_options.delivery: configmap.",
        )
    return location
