"""The rights of a user of cloudtrain in a test's namespace: those that the guide asks an administrator for."""

from __future__ import annotations

from typing import Any

from kube_client import KubeClient, KubeError

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
    """Let ``user`` do what ``rules`` say in the namespace, and read the cluster's nodes and classes."""
    name = f"cloudtrain-{user}"
    subject = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    _put(bench, "roles", namespace, {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    _put(
        bench,
        "rolebindings",
        namespace,
        {"metadata": {"name": name}, "subjects": subject, "roleRef": reference},
    )
    _put(bench, "clusterroles", None, {"metadata": {"name": name}, "rules": CLUSTER_RULES})
    reference = {**reference, "kind": "ClusterRole"}
    binding = {"metadata": {"name": name}, "subjects": subject, "roleRef": reference}
    _put(bench, "clusterrolebindings", None, binding)


def _put(bench: KubeClient, plural: str, namespace: str | None, body: dict[str, Any]) -> None:
    try:
        bench.create(plural, namespace, body)
    except KubeError as error:
        if error.status != 409:
            raise
        bench.patch(plural, namespace, body["metadata"]["name"], body)
