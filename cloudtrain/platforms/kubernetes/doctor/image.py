"""Checks whether the nodes will find the job's image, as far as can be seen without running a pod."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cloudtrain.contract.documents import LARGEST_REPORT, parse_json
from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.kinds import NODE
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.references import registry_of

TIMEOUT = 8.0
"""In seconds. The registry may be one that only the nodes reach."""

_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def check_image(image: str, has_pull_secrets: bool, cluster: Cluster) -> Finding:
    """Whether nodes have the image already, and else what its registry says to someone without credentials."""
    if holders := _nodes_with(image, cluster):
        return Finding(
            CheckStatus.OK, f"{image} is already on {', '.join(holders[:4])}{_more(len(holders) - 4)}"
        )
    status = _ask_registry(image)
    registry = registry_of(image)
    if status == 200:
        return Finding(CheckStatus.OK, f"{image} is public")
    if status == 404:
        return Finding(
            CheckStatus.FAILED,
            f"{registry} has no image {image}",
            "Check image_uri: the repository and the tag.",
        )
    if status in (401, 403):
        if has_pull_secrets:
            return Finding(CheckStatus.UNKNOWN, f"{image} is private: the pull secrets decide")
        return Finding(
            CheckStatus.WARNING,
            f"{registry} shows {image} only to those with credentials, or does not have it",
            "Unless the nodes have them (as on EKS for ECR): set platform_options.image_pull_secrets.",
        )
    return Finding(CheckStatus.UNKNOWN, f"{registry} cannot be asked about {image} from this machine")


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _nodes_with(image: str, cluster: Cluster) -> list[str]:
    """The nodes that report the image; each reports its 50 largest."""
    names = {image, f"docker.io/{image}", f"docker.io/library/{image}"}
    found = []
    try:
        for node in cluster.list(NODE):
            reported: list[Mapping[str, Any]] = (node.get("status") or {}).get("images") or []
            if any(names & set(one.get("names") or []) for one in reported):
                found.append(node["metadata"]["name"])
    except CloudtrainError:  # the check of the nodes says why
        return []
    return found


def _ask_registry(image: str) -> int:
    """The HTTP status of the image's manifest, without credentials; 0 if there is no answer."""
    import httpx2 as httpx

    registry = registry_of(image)
    repository, reference = _split(image.removeprefix(f"{registry}/"))
    if registry == "docker.io":
        repository = repository if "/" in repository else f"library/{repository}"
    host = "registry-1.docker.io" if registry == "docker.io" else registry
    is_local = _is_local(host)
    url = f"{'http' if is_local else 'https'}://{host}/v2/{repository}/manifests/{reference}"
    try:
        with httpx.Client(timeout=TIMEOUT, headers={"Accept": _TYPES}) as client:
            answer = client.head(url)
            challenge = answer.headers.get("WWW-Authenticate", "")
            if answer.status_code == 401 and challenge.lower().startswith("bearer "):
                token = _anonymous_token(client, challenge, is_local=is_local)
                if token:
                    answer = client.head(url, headers={"Authorization": f"Bearer {token}"})
            return int(answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return 0


def _split(rest: str) -> tuple[str, str]:
    """Repository, and digest or tag."""
    repository, _, digest = rest.partition("@")
    name, colon, tag = repository.rpartition(":")
    if colon and "/" not in tag:
        repository = name
    else:
        tag = ""
    return repository, digest or tag or "latest"


def _anonymous_token(client: Any, challenge: str, *, is_local: bool) -> str:
    """The token that a registry gives to everyone; empty if it gives none. Raises ValueError.

    Args:
        is_local: whether the registry is on this machine.
    """
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    # a registry on the network leads to no other service of this machine
    if not realm.startswith("https://") and not (is_local and _is_local(urlsplit(realm).netloc)):
        return ""
    text = b""
    with client.stream("GET", realm, params=fields) as answer:
        if answer.status_code != 200:
            return ""
        for part in answer.iter_bytes():
            text += part
            if len(text) > LARGEST_REPORT:
                return ""
    document = parse_json(text)
    return (
        str(document.get("token") or document.get("access_token") or "") if isinstance(document, dict) else ""
    )


def _is_local(host: str) -> bool:
    return urlsplit(f"//{host}").hostname in ("localhost", "127.0.0.1")
