"""Checks of the objects that the pods name: a pod that names one that is missing waits forever."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain.contract.documents import parse_json
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.kinds import (
    CONFIG_MAP,
    PRIORITY_CLASS,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet


def check_service_account(name: str, cluster: Cluster) -> Finding:
    """The service account of the pods, and the role of the cloud that it brings."""
    account = cluster.find(SERVICE_ACCOUNT, name)
    if account is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no service account {name} in the namespace {cluster.api.namespace}",
            "No pod would be created. Set platform_options.service_account: kubectl get serviceaccounts lists them.",
        )
    role = cloud_role(account)
    return Finding(CheckStatus.OK, f"{name}, with the role {role}" if role else name)


def cloud_role(account: Mapping[str, Any]) -> str:
    """The role of AWS, Google Cloud or Azure of a service account; empty if it has none."""
    annotations = account["metadata"].get("annotations") or {}
    names = (
        "eks.amazonaws.com/role-arn",
        "iam.gke.io/gcp-service-account",
        "azure.workload.identity/client-id",
    )
    return str(next((annotations[name] for name in names if annotations.get(name)), ""))


def check_pull_secrets(image: str, names: Sequence[str], cluster: Cluster) -> Finding:
    """The secrets by which nodes pull the image: whether they exist, and know its registry."""
    registry = registry_of(image)
    known: list[str] = []
    for name in names:
        secret = cluster.find(SECRET, name)
        if secret is None:
            return Finding(
                CheckStatus.FAILED,
                f"there is no Secret {name} in the namespace {cluster.api.namespace}",
                f"kubectl create secret docker-registry {name} --docker-server={registry} --docker-username=NAME "
                "--docker-password=...",
            )
        if secret.get("type") not in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
            return Finding(
                CheckStatus.FAILED,
                f"the Secret {name} has the type {secret.get('type')}, and not kubernetes.io/dockerconfigjson",
                "Create it with: kubectl create secret docker-registry",
            )
        known += _registries(secret)
    if not any(registry in one for one in known):
        return Finding(
            CheckStatus.WARNING,
            f"{', '.join(names)} have credentials for {', '.join(known) or 'no registry'}; the image is in {registry}",
            f"Unless the nodes may pull it by themselves: add --docker-server={registry}.",
        )
    return Finding(CheckStatus.OK, f"{', '.join(names)} have credentials for {registry}")


def registry_of(image: str) -> str:
    """The host of an image's registry: ``docker.io`` if it names none."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _registries(secret: Mapping[str, Any]) -> list[str]:
    """The registries for which a Secret has credentials."""
    data = secret.get("data") or {}
    try:
        config = parse_json(base64.b64decode(data.get(".dockerconfigjson") or data.get(".dockercfg") or ""))
        auths = config.get("auths", config)
        return [str(name) for name in auths]
    except (ValueError, AttributeError, TypeError):
        return []


def check_sources(own: Sequence[str], pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """The user's Secrets and ConfigMaps that the pods take variables and files from.

    Args:
        own: the names of the objects that the job itself brings.
    """
    found = []
    for kind, name, key in sorted(set(_sources(pods)), key=str):
        if name in own:
            continue
        source = cluster.find(kind, name)
        if source is None:
            return Finding(
                CheckStatus.FAILED,
                f"there is no {kind.kind} {name} in the namespace {cluster.api.namespace}",
                "The pods would wait for it. Create it, or correct platform_options.secret_env and env_from.",
            )
        keys = [
            *(source.get("data") or {}),
            *(source.get("stringData") or {}),
            *(source.get("binaryData") or {}),
        ]
        if key and key not in keys:
            return Finding(
                CheckStatus.FAILED,
                f"the {kind.kind} {name} has no key {key}",
                f"Its keys: {', '.join(sorted(keys)) or 'none'}.",
            )
        found.append(f"{kind.kind} {name}")
    return Finding(CheckStatus.OK, ", ".join(dict.fromkeys(found)))


def has_sources(own: Sequence[str], pods: Sequence[PodSet]) -> bool:
    """Whether the pods name Secrets or ConfigMaps that the job does not bring."""
    return any(name not in own for _, name, _ in _sources(pods))


def _sources(pods: Sequence[PodSet]) -> Iterator[tuple[Kind, str, str]]:
    """Kind, name and key of what is not optional."""
    kinds = {
        "secretKeyRef": SECRET,
        "configMapKeyRef": CONFIG_MAP,
        "secretRef": SECRET,
        "configMapRef": CONFIG_MAP,
    }
    for group in pods:
        references = [
            *(
                (variable.get("valueFrom") or {})
                for one in _containers(group)
                for variable in one.get("env") or []
            ),
            *(source for one in _containers(group) for source in one.get("envFrom") or []),
        ]
        for reference in references:
            for field, kind in kinds.items():
                if (target := reference.get(field)) and not target.get("optional"):
                    yield kind, target["name"], target.get("key", "")
        for volume in group.spec.get("volumes") or []:
            for kind, target, name in (
                (SECRET, volume.get("secret"), "secretName"),
                (CONFIG_MAP, volume.get("configMap"), "name"),
            ):
                if target and not target.get("optional"):
                    yield kind, target[name], ""


def _containers(group: PodSet) -> list[Mapping[str, Any]]:
    return list(group.spec.get("containers") or [])


def check_priority(name: str, cluster: Cluster) -> Finding:
    """The priority class of the pods."""
    found = cluster.find(PRIORITY_CLASS, name)
    if found is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no priority class {name}",
            "No pod would be created. kubectl get priorityclasses lists them.",
        )
    return Finding(CheckStatus.OK, f"{name} ({found.get('value')})")
