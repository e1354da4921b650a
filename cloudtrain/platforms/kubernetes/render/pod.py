"""The template of a job's pods, which every rendering uses."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from typing import Any

from cloudtrain.platforms.kubernetes.labels import CONTAINER, NO_SIDECAR, ROLE, WORKER, job_labels
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.pod_files import POD_START, START
from cloudtrain.platforms.kubernetes.render.environment import literal, sources, variables
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.parts import Parts
from cloudtrain.platforms.kubernetes.render.patch import merge
from cloudtrain.platforms.kubernetes.render.resources import resources
from cloudtrain.platforms.kubernetes.render.scheduling import scheduling
from cloudtrain.platforms.kubernetes.render.volumes import pod_volumes

GRACE_FOR_UPLOADS = 300
"""Seconds that a pod has after its ranks have ended: the runtime stores what they saved, and reports. It ends sooner
if that takes less."""

TERMINATION_LOG = "/dev/termination-log"

# "$0" is the first argument after the script. -S: what `site` does is of use only to the Python of the ranks.
_FIND_PYTHON = (
    'for p in {names}; do "$p" -Sc "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null'
    ' && exec "$p" -Sc "$1" "$0" "$2"; done;'
    f" echo cloudtrain: this image has no Python 3.9 or newer | tee {TERMINATION_LOG}; exit 127"
)

# The template of a pod cannot be changed, its ConfigMap can be replaced. -c: the working directory is on sys.path.
_CHECKED = """\
import sys
if sys.path[:1] == [""]: del sys.path[0]
import hashlib
path, sha256 = sys.argv.pop(1), sys.argv.pop(1)
with open(path, "rb") as file: text = file.read()
if hashlib.sha256(text).hexdigest() != sha256:
    sys.exit(f"cloudtrain: {path} is not what this job was submitted with: its ConfigMap was replaced")
exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})
"""
"""Runs a program only if it has the SHA-256 that follows it."""


def pod_template(
    parts: Parts,
    *,
    role: str = WORKER,
    has_ranks: bool = True,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The ``PodTemplateSpec`` of a host. Raises InvalidJob.

    Args:
        role: the pods' label `labels.ROLE`.
        has_ranks: false for a pod that runs no rank, and therefore needs no devices.
        environment: further variables of the runtime.
    """
    options = parts.options
    volumes, mounts = pod_volumes(parts, has_ranks=has_ranks)
    gang = gang_of(parts)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": parts.job.image_uri,
        "command": start_command(options.python),
        "env": variables(parts, environment),
        "volumeMounts": mounts,
        "securityContext": _container_security(options),
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_given(
            {
                "imagePullPolicy": options.image_pull_policy,
                "envFrom": sources(options.env_from),
                "resources": resources(options, has_ranks=has_ranks),
            }
        ),
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(parts.job.stop_grace) + GRACE_FOR_UPLOADS,
        "subdomain": parts.hosts.service,
        "dnsConfig": {"searches": [_domain(parts)]},
        # nothing in the pod calls the API; a token for a cloud's roles is another volume
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(options),
        "containers": [container],
        "volumes": volumes,
        **_given(
            {
                "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets],
                "serviceAccountName": options.service_account,
                "hostNetwork": options.host_network,
                "dnsPolicy": "ClusterFirstWithHostNet" if options.host_network else None,
            }
        ),
        **scheduling(parts),
        **gang.pod_spec,
    }
    labels = {**NO_SIDECAR, **options.labels, **gang.pod_labels, **job_labels(parts.name), ROLE: role}
    annotations = {**options.annotations, **gang.pod_annotations}
    template = {"metadata": _given({"labels": labels, "annotations": annotations}), "spec": spec}
    merged: dict[str, Any] = merge(template, options.pod_patch)
    return merged


def start_command(python: str | None) -> list[str]:
    """The container's ``command``: it finds a Python, which runs `pod_start` if no one has changed it."""
    names = shlex.quote(python) if python else "python3 python"
    script = literal(_FIND_PYTHON.replace("{names}", names))
    return ["/bin/sh", "-c", script, START, _CHECKED, hashlib.sha256(POD_START.read_bytes()).hexdigest()]


def _domain(parts: Parts) -> str:
    """The search domain in which plain host names resolve: ``HOST`` is ``HOST.SERVICE.NAMESPACE.svc.DOMAIN``."""
    return f"{parts.hosts.service}.{parts.namespace}.svc.{parts.options.cluster_domain}"


def _pod_security(options: KubernetesOptions) -> dict[str, Any]:
    """Passes the restricted Pod Security Standard, unless the options say otherwise."""
    user = options.run_as_user
    group = user if options.run_as_group is None else options.run_as_group
    files = group if options.fs_group is None else options.fs_group
    ids = {"runAsUser": user, "runAsGroup": group, "fsGroup": files}
    return {
        "runAsNonRoot": user != 0,
        **{name: value for name, value in ids.items() if value != "image"},
        **({"fsGroupChangePolicy": "OnRootMismatch"} if files != "image" else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security(options: KubernetesOptions) -> dict[str, Any]:
    added = [name.removeprefix("CAP_") for name in options.capabilities]
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
        **({"readOnlyRootFilesystem": True} if options.read_only_root else {}),
    }


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
