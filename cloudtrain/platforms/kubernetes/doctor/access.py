"""Checks of the connection and of the user's rights, of operators and queues, and the cluster's opinion of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cloudtrain.errors import nearest
from cloudtrain.platforms.checks import Finding
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeAlreadyExists,
    KubeError,
    KubeForbidden,
    KubeInvalid,
)
from cloudtrain.platforms.kubernetes.api.kinds import Kind, kind_of
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster, failed, ok, unknown, warning
from cloudtrain.platforms.kubernetes.labels import QUEUE
from cloudtrain.platforms.kubernetes.life.objects import PodSet, part

LOOK = ("get", "list", "watch")
AT_ONCE = 8
"""Requests at the same time."""

OPERATORS = {
    "JobSet": kinds.JOB_SET,
    "Kubeflow Trainer": kinds.TRAIN_JOB,
    "MPI operator": kinds.MPI_JOB,
    "Kueue": kinds.WORKLOAD,
    "Volcano": kinds.VOLCANO_POD_GROUP,
    "coscheduling": kinds.COSCHEDULING_POD_GROUP,
}


def check_context(cluster: Cluster) -> Finding:
    """Where jobs would go, and how the client logs in. Raises PlatformError."""
    api = cluster.api
    where = f"context {api.context}, namespace {api.namespace}, at {api.server}, with {api.method}"
    try:
        found = cluster.find(kinds.NAMESPACE, api.namespace)
    except KubeForbidden:
        return ok(where)
    if found is None:
        return failed(
            f"there is no namespace {api.namespace} ({where})",
            f"Set platform_options.namespace to one that exists, or: kubectl create namespace {api.namespace}",
        )
    if (found.get("status") or {}).get("phase") == "Terminating":
        return failed(f"the namespace {api.namespace} is being deleted", "Use another one.")
    return ok(where)


def check_version(cluster: Cluster) -> Finding:
    """The server's version, and what jobs lack on an old one."""
    major, minor, text = cluster.api.server_version()
    version, name = (major, minor), f"Kubernetes {text or f'{major}.{minor}'}"
    if version < (1, 21):
        return failed(
            f"{name} has no Indexed Jobs: pods would have no index",
            "Jobs need 1.24 or newer: ask the administrators for an upgrade, or use another cluster.",
        )
    if version >= (1, 26):
        return ok(name if version >= (1, 31) else f"{name} (podFailurePolicy is a beta, on by default)")
    beta = "Indexed Jobs as a beta, and " if version < (1, 24) else ""
    return warning(
        f"{name} has {beta}no podFailurePolicy: evictions and lost nodes count as failures of the script",
        "Set max_retry_attempts, or use Kubernetes 1.26 or newer.",
    )


@dataclass(frozen=True)
class Right:
    """Verbs on a resource."""

    kind: Kind
    verbs: Sequence[str]
    why: str
    subresource: str = ""
    is_needed: bool = True
    """False if jobs run without it, and only less is known about them."""

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


USUAL = (kinds.SERVICE, kinds.CONFIG_MAP, kinds.NETWORK_POLICY)
"""The kinds of objects that most jobs own."""
_CREATED = {
    kinds.SERVICE.kind: "let the hosts find one another",
    kinds.CONFIG_MAP.kind: "hand the source to the pods",
    kinds.NETWORK_POLICY.kind: "keep other pods away, which network_policy: false turns off",
    kinds.VOLCANO_POD_GROUP.kind: "start all hosts together",
}


def rights(main: Kind, created: Sequence[Kind] = USUAL, *, has_queue: bool = False) -> list[Right]:
    """All rights for jobs.

    Args:
        main: the kind of their main object.
        created: the kinds of the objects that it owns.
        has_queue: whether a queue of Kueue admits them.
    """
    found = [
        Right(main, ("create", *LOOK, "patch", "delete"), "submit, watch and stop jobs"),
        Right(kinds.POD, LOOK, "watch the hosts of a job"),
        Right(kinds.POD, ("get",), "read logs", "log"),
        Right(kinds.SECRET, ("create",), "hand the job's secret to the pods"),
        *(
            Right(kind, ("create",), _CREATED.get(kind.kind, "submit jobs"))
            for kind in dict.fromkeys(created)
        ),
        Right(kinds.EVENT, ("list", "watch"), "show why a job waits", is_needed=False),
        Right(kinds.POD, ("create",), "simulate preemptions", "eviction", is_needed=False),
        Right(kinds.RESOURCE_QUOTA, ("list",), "check quotas", is_needed=False),
        Right(kinds.VOLUME_CLAIM, ("get",), "check volumes", is_needed=False),
        Right(kinds.SERVICE_ACCOUNT, ("get",), "check the service account", is_needed=False),
    ]
    if main != kinds.JOB:
        found.append(Right(kinds.JOB, ("get", "patch"), "stop the Jobs that the operator makes"))
    if has_queue:
        why = "show why Kueue holds a job back"
        found.append(Right(kinds.WORKLOAD, ("list", "watch", "patch"), why, is_needed=False))
        found.append(Right(kinds.LOCAL_QUEUE, ("get", "list"), "check the queue", is_needed=False))
    return found


def check_rights(wanted: Sequence[Right], cluster: Cluster) -> Finding:
    """Query each verb. The hint is the Role for those that are missing."""
    api = cluster.api
    questions = [(right, verb) for right in wanted for verb in right.verbs]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(
            lambda one: api.allowed(one[1], one[0].kind, subresource=one[0].subresource), questions
        )
        missing = [one for one, is_allowed in zip(questions, answers, strict=True) if not is_allowed]
    if not missing:
        return ok(f"you may do all that jobs need ({len(questions)} rights)")
    lacking = {right: "/".join(verb for one, verb in missing if one == right) for right, _ in missing}
    texts = [f"{verbs} {right.resource} (to {right.why})" for right, verbs in lacking.items()]
    return (failed if any(right.is_needed for right in lacking) else warning)(
        f"in the namespace {api.namespace} you may not: {', '.join(texts)}",
        f"An administrator can allow it with kubectl apply -f FILE, and this FILE:\n{role(wanted, api.namespace)}",
    )


def role(wanted: Sequence[Right], namespace: str) -> str:
    """A Role with all rights, as YAML, and the command that gives it to someone."""
    rules = (
        f'- {{apiGroups: ["{right.kind.group}"], resources: [{right.resource}], verbs: [{", ".join(right.verbs)}]}}'
        for right in wanted
    )
    return "\n".join(
        [
            "apiVersion: rbac.authorization.k8s.io/v1",
            "kind: Role",
            f"metadata: {{name: cloudtrain, namespace: {namespace}}}",
            "rules:",
            *rules,
            f"# then: kubectl create rolebinding cloudtrain -n {namespace} --role=cloudtrain --user=NAME "
            "(or --group=, --serviceaccount=)",
        ]
    )


def check_operators(cluster: Cluster) -> Finding:
    """Which operators there are, in which version. None is needed."""
    served = {name: found for name, kind in OPERATORS.items() if (found := cluster.api.served(kind))}
    shown = ", ".join(f"{name} ({found.api_version})" for name, found in served.items())
    others = [
        f"{name} has {found.version}, and cloudtrain uses {OPERATORS[name].version}"
        for name, found in list(served.items())
        if name in list(OPERATORS)[:3] and found.version != OPERATORS[name].version
    ]
    if others:
        return warning(
            f"{'; '.join(others)}. Found: {shown}",
            "Jobs run as plain Jobs there, which need no operator. Upgrade it, or cloudtrain.",
        )
    return ok(shown or "none: jobs run as plain Jobs, which need no operator")


def check_main_kind(main: Mapping[str, Any], why: str, cluster: Cluster) -> Finding:
    """The kind of object that the job becomes."""
    kind = kind_of(main)
    served = cluster.api.served(kind)
    if served is None or served.version != kind.version:
        return failed(
            f"the cluster does not have {kind.kind} of {kind.api_version}",
            "Set platform_options.rendering: job, which every cluster has, or install the operator.",
        )
    return ok(f"{kind.kind} of {kind.api_version}: {why}")


def check_queue(main: Mapping[str, Any], cluster: Cluster) -> Finding:
    """The Kueue queue of the job."""
    name = main["metadata"]["labels"][QUEUE]
    kind = cluster.api.served(kinds.LOCAL_QUEUE)
    if kind is None:
        return failed(
            f"the job has the queue {name}, and the cluster does not have Kueue",
            "The job would stay suspended: remove platform_options.queue.",
        )
    queue = cluster.find(kind, name)
    if queue is None:
        try:
            names = [item["metadata"]["name"] for item in cluster.list(kind)]
        except KubeError:
            names = []
        return failed(
            f"there is no LocalQueue {name} in the namespace {cluster.api.namespace}",
            (nearest(name, names) if names else "") or "kubectl get localqueues lists them.",
        )
    status = queue.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Active" and condition.get("status") == "False":
            return failed(
                f"the queue {name} admits no jobs: {condition.get('message')}",
                "Ask the administrators, or choose another queue.",
            )
    return ok(f"the queue {name} is active; {status.get('pendingWorkloads') or 0} jobs wait in it")


def check_gang(main: Mapping[str, Any], group: Mapping[str, Any], cluster: Cluster) -> Finding:
    """The scheduler that starts all hosts together."""
    kind = kind_of(group)
    if not cluster.api.has(kind):
        return failed(
            f"the cluster does not have {kind.kind} of {kind.api_version}, which platform_options.gang needs",
            "Remove platform_options.gang, or ask the administrators to install the scheduler.",
        )
    return ok(f"all {main['kind']} pods start together, through {kind.group}")


def check_admission(main: Mapping[str, Any], pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Create the main object, and one pod if the user may, as a dry run: schema, webhooks and policies decide."""
    api, what = cluster.api, main["kind"]
    warnings: list[str] = []
    try:
        api.create(main, dry_run=True, warnings=warnings)
        if what != "TrainJob" and api.allowed("create", kinds.POD):
            metadata = {
                "generateName": f"{main['metadata']['name']}-",
                "namespace": main["metadata"]["namespace"],
                "labels": part(pods[0].template, "metadata", "labels"),
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(pods[0].spec)}
            api.create(pod, dry_run=True)
            what += " and its pods"
    except KubeAlreadyExists as error:
        return failed(error.message, "Choose another job_name, or delete it.")
    except KubeInvalid as error:
        return failed(error.message, error.hint)
    except KubeForbidden as error:
        return unknown(error.message)
    if warnings:
        return warning(
            f"the cluster accepts the {what}, and warns: {'; '.join(dict.fromkeys(warnings))}",
            "The pods may be refused when they are created.",
        )
    return ok(f"the cluster accepts the {what} (a dry run)")
