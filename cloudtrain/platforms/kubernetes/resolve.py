"""Fills in values that a job leaves to this machine and the cluster, and warns about fields without effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.common.ignored import OF_SAGEMAKER
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.kinds import JOB_SET, MPI_JOB, TRAIN_JOB
from cloudtrain.platforms.kubernetes.options import KubernetesOptions, with_profile
from cloudtrain.platforms.kubernetes.render.render import RENDERINGS, check
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri, uri_scheme

_OPERATORS = {
    "jobset": (JOB_SET, "JobSet", "https://jobset.sigs.k8s.io/docs/installation"),
    "trainjob": (
        TRAIN_JOB,
        "Kubeflow Trainer",
        "https://www.kubeflow.org/docs/components/trainer/operator-guides/installation",
    ),
    "mpijob": (MPI_JOB, "the MPI operator", "https://github.com/kubeflow/mpi-operator#installation"),
}
"""The operators that renderings need: the kind, the name, and a page about the installation."""

_INSTEAD = {
    "use_spot_instances": "choose spot nodes with platform_options.node_selector and tolerations",
    "max_wait": "a job waits for nodes without limit; stop it with cloudtrain stop",
    "max_pending_time_in_seconds": "a job waits for nodes without limit; stop it with cloudtrain stop",
    "role": "give the pods a role with platform_options.service_account",
    "tags": "use platform_options.labels",
    "volume_size": "use platform_options.disk",
    "encrypt_inter_container_traffic": "what ranks send to each other is not encrypted, unless the cluster's network "
    "does it",
    "output_kms_key": "S3 encrypts the outputs as their bucket is configured",
    "volume_kms_key": "storage classes decide how volumes are encrypted",
    "subnets": "the cluster has its own network",
    "security_group_ids": "the cluster has its own network",
    "instance_placement_config": "use platform_options.topology or affinity",
}


@dataclass(frozen=True)
class Choice:
    """A rendering, and why it was chosen."""

    rendering: str
    why: str


def resolve(job: TrainingJob, connect: Callable[[str, str], Api]) -> TrainingJob:
    """``job`` with its context, its namespace, its rendering and its checkpoints. Raises InvalidJob, PlatformError.

    Args:
        connect: returns the API of a context and a namespace; an empty name is the current one.
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

    Without a kubeconfig, or if the cluster does not respond, a job can still be rendered for kubectl.
    """
    api, where = None, {}
    try:
        api = connect(options.context or "", options.namespace or "")
        where = {"context": api.context, "namespace": api.namespace}
    except PlatformError:
        if options.context:
            raise
    choice = choose(options.rendering, api)
    if options.rendering == "auto" and job.spare_hosts:
        choice = Choice("job", "it has spare_hosts, and a Job replaces lost pods one by one")
    if options.rendering == "auto" and choice.rendering == "jobset":
        try:
            RENDERINGS["jobset"].host_names(job)
        except InvalidJob:
            choice = Choice("job", "the cluster has JobSet, but the job's name is too long for its pods")
    return {**where, "rendering": choice.rendering, "rendering_reason": choice.why}


def choose(requested: str, cluster: Api | None) -> Choice:
    """The rendering of a job.

    By default, a JobSet if the cluster supports it and the user may create one, else a Job. A TrainJob or an MPIJob is
    used on request only, because each supports fewer of the job's options.

    Args:
        requested: a rendering, or ``auto``.
        cluster: None if there is no kubeconfig. A cluster that does not respond counts as one without operators.

    Raises:
        InvalidJob: the cluster does not have the requested kind in the version that cloudtrain renders.
    """
    try:
        if requested != "auto":
            return _requested(requested, cluster)
        return (
            _found(cluster) if cluster else Choice("job", "no cluster is configured; a Job needs no operator")
        )
    except PlatformError as error:
        if requested != "auto":
            return _requested(requested, None)
        first = str(error).partition("\n")[0]
        return Choice("job", f"the cluster cannot be asked for operators ({first})")


def _requested(rendering: str, cluster: Api | None) -> Choice:
    if rendering in _OPERATORS and cluster:
        kind, name, installation = _OPERATORS[rendering]
        if not cluster.has(kind):
            raise InvalidJob(
                f"platform_options.rendering: the cluster has no {kind.kind} of the version {kind.api_version}",
                hint=f"It comes with {name}: {installation}. Or leave out rendering: a Job needs no operator.",
            )
    return Choice(rendering, "platform_options.rendering asks for it")


def _found(cluster: Api) -> Choice:
    others = [name for name in ("trainjob", "mpijob") if cluster.has(_OPERATORS[name][0])]
    also = f"; rendering: {' or '.join(others)} is possible, too" if others else ""
    if not cluster.has(JOB_SET):
        return Choice("job", f"the cluster has no JobSet, and a Job needs no operator{also}")
    if not cluster.allowed("create", JOB_SET):
        return Choice("job", f"the cluster has JobSet, but you may not create {JOB_SET.resource}{also}")
    return Choice("jobset", f"the cluster has JobSet, which starts all hosts again together{also}")


def _code_location(job: TrainingJob, options: KubernetesOptions) -> str | None:
    """The URI from which pods fetch the source; None if a ConfigMap delivers it. Raises InvalidJob."""
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


def ignored_fields(job: TrainingJob) -> list[str]:
    """A warning, one sentence, for each field of ``job`` that has no effect here."""
    given, options = job.to_dict(), job.platform_options
    found = [f"{name} has no effect on Kubernetes: {_INSTEAD[name]}" for name in _INSTEAD if name in given]
    if options.get("host_network") and options.get("network_policy", True):
        found.append(
            "platform_options.host_network: no NetworkPolicy applies to pods in the network of their nodes, so other "
            "pods can reach those of this job"
        )
    if "checkpoint_s3_uri" not in given:
        most = options.get("max_preemptions", KubernetesOptions().max_preemptions)
        lost = "a job whose pods are evicted, preempted or lost starts from zero"
        found.append(
            f"no checkpoint_s3_uri: {lost}, and ends after platform_options.max_preemptions ({most})"
            if "output_path" in given
            else f"no checkpoint_s3_uri and no output_path: {lost}, without a limit"
        )
    if others := [name for name in OF_SAGEMAKER if name in given]:
        verb = "has" if len(others) == 1 else "have"
        found.append(f"{', '.join(others)} {verb} no effect on Kubernetes: only SageMaker has this service")
    return found
