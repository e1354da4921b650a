"""A job as a TrainJob of Kubeflow Trainer: what its API has a field for, and patches of its training runtime."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.labels import job_labels
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render import jobset
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.jobset import NODE
from cloudtrain.platforms.kubernetes.render.main_object import main_object
from cloudtrain.platforms.kubernetes.render.parts import HostNames, Parts
from cloudtrain.platforms.kubernetes.render.pod import pod_template
from cloudtrain.spec import TrainingJob

MANAGER = "cloudtrain/submit"
"""The key of the patches of cloudtrain. Kueue has its own."""
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
CONTAINER = "node"
"""The container of Kubeflow's training runtimes that trains."""

_POD_FIELDS = {
    "serviceAccountName",
    "volumes",
    "imagePullSecrets",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
    "schedulingGates",
    "terminationGracePeriodSeconds",
}
"""The fields of a pod that a patch may have."""
_POD_FIELDS_OF_RUNTIME = {
    "restartPolicy",
    "subdomain",
    "hostname",
    "dnsConfig",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "containers",
}
"""The fields that the training runtime and JobSet decide on; the job runs without those of the template."""
_CONTAINER_FIELDS = {"volumeMounts", "securityContext"}
_CONTAINER_FIELDS_OF_TRAINER = {"name", "image", "command", "args", "env", "resources"}
_CONTAINER_FIELDS_OF_RUNTIME = {
    "ports",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
}
_OPTIONS = {
    "priorityClassName": "priority_class",
    "topologySpreadConstraints": "topology_spread",
    "schedulerName": "scheduler",
    "hostNetwork": "host_network",
    "imagePullPolicy": "image_pull_policy",
    "envFrom": "env_from",
}
"""The options that make fields for which a TrainJob has no place."""


TORCHRUN_VARIABLES = tuple(
    f"PET_{name}" for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
)
"""The variables that Trainer sets, as defaults of torchrun's options. A job may not set them."""

OPTIONS = ("training_runtime", "training_runtime_kind")


def host_names(job: TrainingJob) -> HostNames:
    """The names are those of a JobSet, with the Service's: a TrainJob has no place for the search list that makes plain
    names resolve. Raises InvalidJob.
    """
    plain = jobset.host_names(job)
    names = tuple(f"{name}.{plain.service}" for name in plain.names)
    return HostNames(names, plain.service, leader=names[0])


def settings(job: TrainingJob, _: KubernetesOptions) -> dict[str, Any]:
    """The kubelet starts the containers of Kubeflow's training runtimes again in place; torchrun is the job's own."""
    return {
        "retries_in_place": job.max_retry_attempts,
        "dropped_variables": ",".join(TORCHRUN_VARIABLES),
    }


def helpers(_: Parts) -> list[dict[str, Any]]:
    """None: the group of the pods is up to the training runtime."""
    return []


def _check_gang(parts: Parts) -> None:
    if parts.options.gang in ("volcano", "coscheduling"):
        raise InvalidJob(
            f"platform_options.gang: {parts.options.gang} is up to the training runtime of a TrainJob",
            hint="Name a platform_options.training_runtime with a podGroupPolicy, or choose rendering: jobset.",
        )


def render_trainjob(parts: Parts) -> dict[str, Any]:
    """The TrainJob. Trainer creates the JobSet, and JobSet the Service.

    Raises:
        InvalidJob: an option has no place in a TrainJob.
    """
    _check_gang(parts)
    _check_environment(parts)
    template = pod_template(parts)
    metadata, pod = template.get("metadata", {}), template["spec"]
    container = pod["containers"][0]
    _check(pod, _POD_FIELDS | _POD_FIELDS_OF_RUNTIME, "pods")
    _check(
        container,
        _CONTAINER_FIELDS | _CONTAINER_FIELDS_OF_TRAINER | _CONTAINER_FIELDS_OF_RUNTIME,
        "containers",
    )
    if len(pod["containers"]) > 1:
        raise _no_place("more than one container in a pod", "pod_patch")
    if pod.get("automountServiceAccountToken") is False:
        pod, container = _without_token(pod, container)
    patch = {
        **_only(pod, _POD_FIELDS),
        "containers": [{"name": CONTAINER, **_only(container, _CONTAINER_FIELDS)}],
    }
    trainer = {
        **_only(container, {"image", "command", "args", "env"}),
        "numNodes": len(parts.hosts.names),
    }
    if "resources" in container:
        trainer["resourcesPerNode"] = container["resources"]
    node = {
        "name": NODE,
        "template": {
            "metadata": {"labels": job_labels(parts.name)},
            "spec": {"template": {"metadata": _only(metadata, {"labels", "annotations"}), "spec": patch}},
        },
    }
    spec: dict[str, Any] = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": parts.options.training_runtime_kind,
            "name": parts.options.training_runtime,
        },
        "trainer": trainer,
        "runtimePatches": [
            {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
        ],
    }
    if gang_of(parts).is_suspended:
        spec["suspend"] = True
    return main_object(parts, "trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def _without_token(pod: dict[str, Any], container: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A patch has no ``automountServiceAccountToken``. A volume at the path of the token takes its place, though: the
    admission of service accounts mounts nothing over it.
    """
    volume = {"name": "no-token", "emptyDir": {}}
    mount = {"name": "no-token", "mountPath": TOKEN_PATH, "readOnly": True}
    return (
        {**pod, "volumes": [*pod["volumes"], volume]},
        {**container, "volumeMounts": [*container["volumeMounts"], mount]},
    )


def _check_environment(parts: Parts) -> None:
    for name in (*parts.job.environment, *parts.options.secret_env):
        if name in TORCHRUN_VARIABLES:
            raise InvalidJob(
                f"environment.{name}: Trainer sets this variable itself, and refuses TrainJobs that do",
                hint="Remove it: the ranks do not see Trainer's values. Or choose rendering: jobset.",
            )


def _only(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _check(fields: dict[str, Any], known: set[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise _no_place(f"the field {name} of {where}", _OPTIONS.get(name, "pod_patch"))


def _no_place(what: str, option: str) -> InvalidJob:
    return InvalidJob(
        f"platform_options.{option}: a TrainJob has no place for {what}",
        hint=f"Remove {option}, choose another platform_options.rendering, or name a platform_options.training_runtime "
        "that sets it.",
    )
