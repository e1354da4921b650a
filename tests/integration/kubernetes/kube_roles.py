"""The rights of a user of cloudtrain in a test's namespace: those that the guide asks an administrator for."""

from __future__ import annotations

import secrets
import time
from typing import Any

from kube_client import KubeClient, KubeError

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MARKS = "marks.tests.cloudtrain"
"""The group of a resource that does not exist: the right to read it shows that a role has arrived."""

OWNED = ["create", "get", "list", "watch", "patch", "delete"]
SEEN = ["get", "list", "watch"]

RULES: list[dict[str, Any]] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": OWNED},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": OWNED},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": OWNED},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainingruntimes"], "verbs": SEEN},
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": OWNED},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": OWNED},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": OWNED},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*SEEN, "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": SEEN},
    {
        "apiGroups": [""],
        "resources": ["resourcequotas", "persistentvolumeclaims"],
        "verbs": SEEN,
    },
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": [*SEEN, "patch"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": SEEN},
]

CLUSTER_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": SEEN},
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": SEEN},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": SEEN},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["clustertrainingruntimes"], "verbs": SEEN},
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": SEEN},
]


def grant(
    bench: KubeClient, namespace: str, user: str = "alice", rules: list[dict[str, Any]] = RULES
) -> None:
    """Let ``user`` do what ``rules`` say in the namespace, and read the cluster's nodes and classes.

    The server learns of changed roles by watches: this returns once it decides by the new ones.
    """
    name, mark = f"cloudtrain-{user}", secrets.token_hex(4)
    subject = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    _put(bench, "roles", namespace, {"metadata": {"name": name}, "rules": [*rules, right_to(mark)]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    _put(
        bench,
        "rolebindings",
        namespace,
        {"metadata": {"name": name}, "subjects": subject, "roleRef": reference},
    )
    _put(bench, "clusterroles", None, {"metadata": {"name": name}, "rules": [*CLUSTER_RULES, right_to(mark)]})
    reference = {**reference, "kind": "ClusterRole"}
    binding = {"metadata": {"name": name}, "subjects": subject, "roleRef": reference}
    _put(bench, "clusterrolebindings", None, binding)
    wait_for_right(bench, user, mark, namespace)
    wait_for_right(bench, user, mark)


def right_to(mark: str) -> dict[str, Any]:
    """A rule for `wait_for_right`: the last one of a role."""
    return {"apiGroups": [MARKS], "resources": ["marks"], "resourceNames": [mark], "verbs": ["get"]}


def wait_for_right(bench: KubeClient, user: str, mark: str, namespace: str | None = None) -> None:
    """Wait until the server decides by the role with `right_to` ``mark``, in a namespace or in all."""
    place = {"namespace": namespace} if namespace else {}
    what = {"group": MARKS, "resource": "marks", "name": mark, "verb": "get", **place}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": what},
    }
    deadline = time.monotonic() + 90
    while not bench.call("POST", REVIEWS, review)["status"]["allowed"]:
        assert time.monotonic() < deadline, f"the server does not know the role of {user}"
        time.sleep(0.02)


def _put(bench: KubeClient, plural: str, namespace: str | None, body: dict[str, Any]) -> None:
    try:
        bench.create(plural, namespace, body)
    except KubeError as error:
        if error.status != 409:
            raise
        bench.patch(plural, namespace, body["metadata"]["name"], body)
