"""The template of a job's pods for all renderings: the command, variables, resources, volumes and nodes."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import VARIABLE as SECRET
from cloudtrain.platforms.kubernetes.labels import (
    CONTAINER,
    JOB_SECRET,
    MOUNTS,
    NO_SIDECAR,
    POD_START,
    ROLE,
    START,
    URLS,
    WORKER,
    job_labels,
    runtime_map,
)
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.objects import Parts, documents, gang_kind, gang_of, refuse_if
from cloudtrain.spec.notify import notify_variables
from cloudtrain.spec.secrets import REDACTED
from cloudtrain.storage import uri_scheme
from cloudtrain.storage.uri import uri_to_path

GRACE_FOR_UPLOADS = 300
"""Seconds that a pod has after its ranks have ended, in which the runtime uploads their outputs and reports. It ends
earlier if that takes less time."""
TERMINATION_LOG = "/dev/termination-log"

# Variables with which `pod_start` verifies first the runtime and then the documents, and finds its host in the network
# of a node. The runtime itself has the SHA-256 of the source.
RUNTIME_SHA256, DOCUMENTS_SHA256 = "CLOUDTRAIN_RUNTIME_SHA256", "CLOUDTRAIN_DOCUMENTS_SHA256"
POD = "CLOUDTRAIN_POD"

# "$0" is the first argument after the script. -S: only the Python of the ranks needs `site`.
_FIND_PYTHON = (
    # as process 1, the shell and Python ignore signals that they do not handle
    'trap "exit ${CLOUDTRAIN_RESTART_EXIT_CODE:-143}" TERM; '
    'for p in {names}; do "$p" -Sc "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null'
    ' && exec "$p" -Sc "$1" "$0" "$2"; done;'
    f" echo cloudtrain: this image has no Python 3.9 or newer | tee {TERMINATION_LOG}; exit 127"
)

# Runs a program only if it has the SHA-256 that follows it: the template of a pod is immutable, but its ConfigMap can
# be replaced. -c: the working directory is on sys.path.
_CHECKED = """\
import sys
if sys.path[:1] == [""]: del sys.path[0]
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(os.environ.get("CLOUDTRAIN_RESTART_EXIT_CODE") or 143)))
import hashlib
path, sha256 = sys.argv.pop(1), sys.argv.pop(1)
with open(path, "rb") as file: text = file.read()
if hashlib.sha256(text).hexdigest() != sha256:
    sys.exit(f"cloudtrain: {path} is not what this job was submitted with: its ConfigMap was replaced")
exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})
"""

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")
_OWN_PATHS = (DEFAULT_BASE, MOUNTS, "/dev/shm", "/tmp")
_CLAIM = re.compile(r"(?P<claim>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<path>/[^:]*)(?P<read_only>:ro)?")


def pod_template(
    parts: Parts, *, role: str = WORKER, has_ranks: bool = True, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The ``PodTemplateSpec`` of a host. Raises InvalidJob.

    Args:
        role: the value of the pods' label `labels.ROLE`.
        has_ranks: False for a pod that runs no rank, and therefore needs no devices.
        environment: additional variables for the runtime.
    """
    options, gang = parts.options, gang_of(parts)
    volumes, mounts = _pod_volumes(parts, has_ranks)
    container = {
        "name": CONTAINER,
        "image": parts.job.image_uri,
        "command": start_command(options.python),
        "env": _variables(parts, environment or {}),
        "volumeMounts": mounts,
        "securityContext": _container_security(options),
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_given(
            imagePullPolicy=options.image_pull_policy,
            envFrom=_sources(options.env_from),
            resources=_resources(options, has_ranks),
        ),
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(parts.job.stop_grace) + GRACE_FOR_UPLOADS,
        "subdomain": parts.hosts.service,
        # the domain in which plain host names resolve
        "dnsConfig": {"searches": [f"{parts.hosts.service}.{parts.namespace}.svc.{options.cluster_domain}"]},
        # nothing in the pod calls the API; a token for cloud roles has its own volume
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(options),
        "containers": [container],
        "volumes": volumes,
        **_given(
            imagePullSecrets=[{"name": name} for name in options.image_pull_secrets],
            serviceAccountName=options.service_account,
            hostNetwork=options.host_network,
            dnsPolicy="ClusterFirstWithHostNet" if options.host_network else None,
        ),
        **_scheduling(parts),
        **gang.pod_spec,
    }
    labels = {**NO_SIDECAR, **options.labels, **gang.pod_labels, **job_labels(parts.name), ROLE: role}
    metadata = _given(labels=labels, annotations={**options.annotations, **gang.pod_annotations})
    merged: dict[str, Any] = merge({"metadata": metadata, "spec": spec}, options.pod_patch)
    return merged


def merge(base: Any, patch: Any) -> Any:
    """``base`` with ``patch`` applied, like a strategic merge patch of Kubernetes.

    Mappings are merged. In lists of mappings, items with the same ``name`` are merged, others are added. Any other
    list replaces that of ``base``, and None removes a key.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = {key: value for key, value in base.items() if key not in patch or patch[key] is not None}
        given = {key: value for key, value in patch.items() if value is not None}
        return {
            **merged,
            **{key: merge(base[key], value) if key in base else value for key, value in given.items()},
        }
    if _are_named(base) and _are_named(patch):
        patches = {item["name"]: item for item in patch}
        return [*(merge(item, patches.pop(item["name"], {})) for item in base), *patches.values()]
    return patch


def _are_named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, dict) and "name" in item for item in items)


def start_command(python: str | None) -> list[str]:
    """The container's ``command``: it finds a Python, which runs `pod_start` after verifying it."""
    script = literal(_FIND_PYTHON.replace("{names}", shlex.quote(python) if python else "python3 python"))
    return ["/bin/sh", "-c", script, START, _CHECKED, hashlib.sha256(POD_START.read_bytes()).hexdigest()]


def literal(text: str) -> str:
    """``text``, escaped so that Kubernetes, which replaces ``$(NAME)`` and ``$$``, passes it on unchanged."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _variables(parts: Parts, extra: Mapping[str, str]) -> list[dict[str, Any]]:
    """The container's ``env``. Raises InvalidJob for an invalid reference to a Secret."""
    options = parts.options
    plain = {
        **parts.settings.to_environ(),
        RUNTIME_SHA256: parts.runtime_sha256,
        DOCUMENTS_SHA256: hashlib.sha256("".join(documents(parts).values()).encode()).hexdigest(),
        **extra,
    }
    found: list[dict[str, Any]] = [{"name": name, "value": literal(value)} for name, value in plain.items()]
    found.append(_from_secret(SECRET, parts.name, JOB_SECRET))
    of_notify = dict.fromkeys(notify_variables(parts.job.notify), REDACTED)
    for name, value in {**of_notify, **parts.job.shown_environment}.items():
        if name not in plain and name != SECRET and name not in options.secret_env:
            hidden = value == REDACTED
            found.append(
                _from_secret(name, parts.name, name) if hidden else {"name": name, "value": literal(value)}
            )
    if options.host_network:
        found.append({"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    for name, reference in options.secret_env.items():
        secret, _, key = reference.partition("/")
        refuse_if(
            not secret or not key or "/" in key,
            f"platform_options.secret_env.{name}: is not a reference to a key of a Secret",
            f"Write {name}: SECRET/KEY, the names of a Secret of the namespace and of a key in it. "
            "To pass a variable of this machine, name it in secrets.",
        )
        found.append(_from_secret(name, secret, key))
    return found


def _from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _sources(env_from: list[str]) -> list[dict[str, Any]]:
    """The container's ``envFrom``. Raises InvalidJob."""
    found = []
    fields = {"secret": "secretRef", "configmap": "configMapRef"}
    for index, text in enumerate(env_from):
        kind, _, name = text.partition(":")
        refuse_if(
            kind not in fields or not name,
            f"platform_options.env_from[{index}]: {text!r} names neither a Secret nor a ConfigMap",
            "Write secret:NAME or configmap:NAME.",
        )
        found.append({fields[kind]: {"name": name}})
    return found


def _pod_security(options: KubernetesOptions) -> dict[str, Any]:
    """The security context of a pod. It meets the restricted Pod Security Standard, unless the options override it."""
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


def _resources(options: KubernetesOptions, has_ranks: bool) -> dict[str, Any]:
    """The container's ``resources``; empty if the job requests none. Raises InvalidJob.

    Requests are limits, too. If a host exceeds its memory, this host ends and no other. Ranks start as many threads as
    they have processors. With both, the node evicts other pods first, and may pin the processors.
    """
    given = {"cpu": options.cpu, "memory": options.memory, "disk": options.disk}
    amounts = {name: quantity(name, value) for name, value in given.items() if value is not None}
    if "disk" in amounts:
        amounts["ephemeral-storage"] = amounts.pop("disk")
    if has_ranks:
        devices = {options.gpu_resource: options.gpus} if options.gpus else {}
        for name, amount in {**devices, **options.resources}.items():
            amounts[name] = quantity(f"resources.{name}", amount)
    refuse_if(
        any(name.startswith("hugepages-") for name in amounts) and not {"cpu", "memory"} & set(amounts),
        "platform_options.resources: Kubernetes gives huge pages only with cpu or memory",
        "Add platform_options.memory, for example 64Gi.",
    )
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def quantity(field: str, value: str | float) -> str:
    """An amount in Kubernetes' notation. Raises InvalidJob."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    refuse_if(
        not _QUANTITY.fullmatch(text),
        f"platform_options.{field}: {text!r} is not an amount of Kubernetes",
        "For example 4, 500m, 32G or 32Gi: without a space, and without B.",
    )
    return text


def _scheduling(parts: Parts) -> dict[str, Any]:
    """The fields of a pod's ``spec`` that choose its node."""
    options, own = parts.options, {"matchLabels": job_labels(parts.name)}
    affinity, key = options.affinity, options.topology
    is_plain = key and len(parts.hosts.names) > 1 and gang_kind(parts) != "kueue"
    if is_plain and "podAffinity" not in affinity:  # prefer one domain, such as a zone or a block
        term = {"weight": 100, "podAffinityTerm": {"labelSelector": own, "topologyKey": key}}
        affinity = {**affinity, "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": own}
    return _given(
        nodeSelector=options.node_selector,
        tolerations=options.tolerations,
        affinity=affinity,
        topologySpreadConstraints=[{**spread, **given} for given in options.topology_spread],
        priorityClassName=options.priority_class,
        schedulerName=options.scheduler,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class Volume:
    """A volume from the user's options."""

    source: Mapping[str, Any]
    path: str
    read_only: bool = False
    sub_path: str = ""


def volumes_of(options: KubernetesOptions) -> list[Volume]:
    """The job's ``volumes``. Raises InvalidJob."""
    found: list[Volume] = []
    for index, given in enumerate(options.volumes):
        found.append(volume := _volume(given, where := f"platform_options.volumes[{index}]"))
        refuse_if(
            volume.path in (*_OWN_PATHS, *(one.path for one in found[:-1])),
            f"{where}: something else is mounted at {volume.path}",
            "Mount it at another path, for example /data.",
        )
    return found


def check_path(field: str, uri: str | None, volumes: list[Volume], *, writes: bool = False) -> None:
    """Raises InvalidJob for a ``file://`` URI that is on none of ``volumes``, or on one that is read-only."""
    if not uri or uri_scheme(uri) != "file":
        return
    path = PurePosixPath(uri_to_path(uri))
    inside = [volume for volume in volumes if path.is_relative_to(volume.path)]
    refuse_if(
        not inside,
        f"{field}: {path} is on this machine, and pods see only what is mounted in them",
        f"Mount a PersistentVolumeClaim there: platform_options.volumes: [CLAIM:{path.parent}]; or use an "
        "s3:// URI.",
    )
    nearest = max(inside, key=lambda volume: len(volume.path))
    refuse_if(
        writes and nearest.read_only,
        f"{field}: {path} is on a volume that is mounted read-only",
        f"Remove :ro from the volume at {nearest.path}, or choose another path.",
    )


def _pod_volumes(parts: Parts, has_ranks: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The pod's ``volumes`` and the container's ``volumeMounts``. Raises InvalidJob.

    Huge pages are mounted only in pods that request them: a node would refuse to mount them in others.
    """
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def add(name: str, source: Mapping[str, Any], path: str, **more: Any) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **more})

    options, name = parts.options, parts.name
    add("work", {"emptyDir": {"sizeLimit": options.disk} if options.disk else {}}, DEFAULT_BASE)
    add("tmp", {"emptyDir": {}}, "/tmp")
    shm = {"medium": "Memory"}
    if options.shm_size is not None:
        shm["sizeLimit"] = quantity("shm_size", options.shm_size)
    add("shm", {"emptyDir": shm}, "/dev/shm")
    add("config", {"configMap": {"name": name}}, f"{MOUNTS}/config", readOnly=True)
    if parts.by_url:  # only the keys that must be files: other secrets of the job are variables
        urls = {"secretName": name, "items": [{"key": key, "path": key} for key in URLS]}
        add("secret", {"secret": urls}, f"{MOUNTS}/secret", readOnly=True)
    else:
        add("runtime", {"configMap": {"name": runtime_map(name)}}, f"{MOUNTS}/runtime", readOnly=True)
    for resource in options.resources:
        if has_ranks and resource.startswith("hugepages-"):
            medium = f"HugePages-{resource.removeprefix('hugepages-')}"
            add(resource.lower(), {"emptyDir": {"medium": medium}}, f"/{resource.lower()}")
    for index, volume in enumerate(volumes_of(options)):
        more = _given(readOnly=volume.read_only, subPath=volume.sub_path)
        add(f"volume-{index}", volume.source, volume.path, **more)
    return volumes, mounts


def _volume(volume: str | Mapping[str, Any], where: str) -> Volume:
    if isinstance(volume, str):
        match = _CLAIM.fullmatch(volume)
        if not match:
            raise InvalidJob(
                f"{where}: {volume!r} is not a volume",
                hint="Write CLAIM:/PATH or CLAIM:/PATH:ro, with the name of a PersistentVolumeClaim.",
            )
        claim = {"persistentVolumeClaim": {"claimName": match["claim"]}}
        return Volume(claim, _clean(match["path"], where), bool(match["read_only"]))
    given = dict(volume)
    path, read_only, sub_path = (
        given.pop("path", ""),
        given.pop("read_only", False),
        given.pop("sub_path", ""),
    )
    refuse_if(
        not isinstance(path, str) or not isinstance(read_only, bool) or not isinstance(sub_path, str),
        f"{where}: path and sub_path are text, read_only is true or false",
        "",
    )
    refuse_if(
        len(given) != 1 or not all(isinstance(value, dict) for value in given.values()),
        f"{where}: expected path and one source",
        "For example {path: /data, nfs: {server: nfs.example.com, path: /exports}}: the sources are those of "
        "a pod's volumes.",
    )
    return Volume(given, _clean(path, where), read_only, sub_path)


def _clean(path: str, where: str) -> str:
    is_wrong = not path.startswith("/") or ":" in path or ".." in path.split("/") or not path.strip("/")
    refuse_if(is_wrong, f"{where}: {path!r} is not an absolute path", "For example /data.")
    return f"/{path.strip('/')}"
