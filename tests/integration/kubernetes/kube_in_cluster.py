"""A process of this machine with what a pod has to reach its cluster: the token of a service account, and variables."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kube_fixtures import Namespace
from kube_roles import right_to, wait_for_right

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


def as_pod(
    kubernetes: Namespace, folder: Path, rules: Sequence[dict[str, Any]], token: str = ""
) -> tuple[list[str], dict[str, str]]:
    """The beginning of a command line, and the environment, of a process with a service account.

    Args:
        rules: what the service account may do in the namespace.
        token: it has this one at first, and its own in the file ``next``.
    """
    bench, name = kubernetes.bench, kubernetes.name
    bench.create("serviceaccounts", name, {"metadata": {"name": "trainer"}})
    mark = secrets.token_hex(4)
    bench.create("roles", name, {"metadata": {"name": "trainer"}, "rules": [*rules, right_to(mark)]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trainer"}
    subjects = [{"kind": "ServiceAccount", "name": "trainer", "namespace": name}]
    bench.create(
        "rolebindings", name, {"metadata": {"name": "trainer"}, "roleRef": reference, "subjects": subjects}
    )
    wait_for_right(bench, f"system:serviceaccount:{name}:trainer", mark, name)
    path = f"/api/v1/namespaces/{name}/serviceaccounts/trainer/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    _, answer = bench.raw("POST", path, request)
    own = json.loads(answer)["status"]["token"]
    account = folder / "account"
    account.mkdir()
    for file, text in {"token": token or own, "next": own, "namespace": name}.items():
        (account / file).write_text(text)
    (account / "ca.crt").write_bytes(kubernetes.server.authority.read_bytes())
    mounts = f"mount -t tmpfs none /run && mkdir -p {FOLDER} && mount --bind {account} {FOLDER}"
    host, port = kubernetes.proxy.url.removeprefix("https://").split(":")
    environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(folder)}
    return ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$0" "$@"'], environ
