"""Checks of the connection, of the server's version and operators, and of the user's rights."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cloudtrain.platforms.checks import Finding, failed, ok, warning
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import Kind
from cloudtrain.platforms.kubernetes.life.objects import text

LOOK = ("get", "list", "watch")
AT_ONCE = 8
"""The number of concurrent requests."""

OPERATORS = {
    "JobSet": kinds.JOB_SET,
    "Kubeflow Trainer": kinds.TRAIN_JOB,
    "MPI operator": kinds.MPI_JOB,
    "Kueue": kinds.WORKLOAD,
    "Volcano": kinds.VOLCANO_POD_GROUP,
    "coscheduling": kinds.COSCHEDULING_POD_GROUP,
}


def find(api: Api, kind: Kind, name: str) -> dict[str, Any] | None:
    """One object; None if there is none. Raises KubeError."""
    try:
        return api.get(kind, name)
    except KubeNotFound:
        return None


def check_context(api: Api) -> Finding:
    """Check the place where jobs would run, and how the client authenticates. Raises PlatformError."""
    where = f"context {api.context}, namespace {api.namespace}, at {api.server}, with {api.method}"
    try:
        found = find(api, kinds.NAMESPACE, api.namespace)
    except KubeForbidden:
        return ok(where)
    if found is None:
        return failed(
            f"there is no namespace {api.namespace} ({where})",
            f"Set platform_options.namespace to one that exists, or: kubectl create namespace {api.namespace}",
        )
    if text(found, "status", "phase") == "Terminating":
        return failed(f"the namespace {api.namespace} is being deleted", "Use another one.")
    return ok(where)


def check_version(api: Api, *, has_spares: bool = False) -> Finding:
    """Check the server's version for features that jobs need."""
    major, minor, full = api.server_version()
    version, name = (major, minor), f"Kubernetes {full or f'{major}.{minor}'}"
    if version < (1, 21):
        return failed(
            f"{name} has no Indexed Jobs: pods would have no index",
            "Jobs need 1.24 or newer: ask the administrators for an upgrade, or use another cluster.",
        )
    if has_spares and version < (1, 31):
        return warning(
            f"{name} has no successPolicy: a job with spare_hosts ends only when all of its pods have run",
            "Use Kubernetes 1.31 or newer, or leave spare_hosts out.",
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
    """False if jobs run without it, with less information about them."""

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
        Right(kinds.POD, ("get", "create"), "take the stacks of ranks", "exec", is_needed=False),
        Right(kinds.RESOURCE_QUOTA, ("list",), "check quotas", is_needed=False),
        Right(kinds.VOLUME_CLAIM, ("get",), "check volumes", is_needed=False),
        Right(kinds.SERVICE_ACCOUNT, ("get",), "check the service account", is_needed=False),
    ]
    if main != kinds.JOB:
        found.append(Right(kinds.JOB, ("get", "patch"), "stop the Jobs that the operator makes"))
        found.append(Right(kinds.JOB, ("create", "delete"), "download from a volume", is_needed=False))
    if has_queue:
        why = "show why Kueue holds a job back"
        found.append(Right(kinds.WORKLOAD, ("list", "watch", "patch"), why, is_needed=False))
        found.append(Right(kinds.LOCAL_QUEUE, ("get", "list"), "check the queue", is_needed=False))
    return found


def check_rights(wanted: Sequence[Right], api: Api) -> Finding:
    """Query each verb. If some are missing, the hint is a Role with all of them."""
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
    """A Role with all rights, as YAML, and the command that grants it to someone."""
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


def check_operators(api: Api) -> Finding:
    """Check which operators the cluster has, and their versions. None is required."""
    served = {name: found for name, kind in OPERATORS.items() if (found := api.served(kind))}
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
