"""Which rights jobs need, which of them the user has, and the Role that grants the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.kinds import Kind
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster

LOOK = ("get", "list", "watch")
AT_ONCE = 8
"""Requests at the same time."""


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
        Right(kinds.EVENT, ("list", "watch"), "say why a job waits", is_needed=False),
        Right(kinds.POD, ("create",), "simulate preemptions", "eviction", is_needed=False),
        Right(kinds.RESOURCE_QUOTA, ("list",), "check quotas", is_needed=False),
        Right(kinds.LIMIT_RANGE, ("list",), "check limits", is_needed=False),
        Right(kinds.VOLUME_CLAIM, ("get",), "check volumes", is_needed=False),
        Right(kinds.SERVICE_ACCOUNT, ("get",), "check the service account", is_needed=False),
    ]
    if main != kinds.JOB:
        found.append(Right(kinds.JOB, ("get", "patch"), "stop the Jobs that the operator makes"))
    if has_queue:
        found += [
            Right(
                kinds.WORKLOAD, ("list", "watch", "patch"), "say why Kueue holds a job back", is_needed=False
            ),
            Right(kinds.LOCAL_QUEUE, ("get", "list"), "check the queue", is_needed=False),
        ]
    return found


def check_rights(wanted: Sequence[Right], cluster: Cluster) -> Finding:
    """Ask about each verb. The hint is the Role for those that are missing."""
    api = cluster.api
    questions = [(right, verb) for right in wanted for verb in right.verbs]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(
            lambda question: api.allowed(question[1], question[0].kind, subresource=question[0].subresource),
            questions,
        )
        missing = [
            question for question, is_allowed in zip(questions, answers, strict=True) if not is_allowed
        ]
    if not missing:
        return Finding(CheckStatus.OK, f"you may do all that jobs need ({len(questions)} rights)")
    lacking = [
        (right, [verb for one, verb in missing if one == right])
        for right in dict.fromkeys(r for r, _ in missing)
    ]
    texts = [f"{'/'.join(verbs)} {right.resource} (to {right.why})" for right, verbs in lacking]
    is_fatal = any(right.is_needed for right, _ in lacking)
    return Finding(
        CheckStatus.FAILED if is_fatal else CheckStatus.WARNING,
        f"in the namespace {api.namespace} you may not: {', '.join(texts)}",
        f"An administrator can allow it with kubectl apply -f FILE, and this FILE:\n{role(wanted, api.namespace)}",
    )


def role(wanted: Sequence[Right], namespace: str) -> str:
    """A Role with all rights, as YAML, and the command that gives it to someone."""
    return "\n".join(_role_lines(wanted, namespace))


def _role_lines(wanted: Sequence[Right], namespace: str) -> Iterator[str]:
    yield from ("apiVersion: rbac.authorization.k8s.io/v1", "kind: Role")
    yield f"metadata: {{name: cloudtrain, namespace: {namespace}}}"
    yield "rules:"
    for right in wanted:
        group = f'"{right.kind.group}"'
        verbs = ", ".join(right.verbs)
        yield f"- {{apiGroups: [{group}], resources: [{right.resource}], verbs: [{verbs}]}}"
    yield (
        f"# then: kubectl create rolebinding cloudtrain -n {namespace} --role=cloudtrain --user=NAME "
        "(or --group=, --serviceaccount=)"
    )
