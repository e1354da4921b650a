"""Looks up an image in its registry, without credentials."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from cloudtrain.contract.documents import LARGEST_REPORT, parse_json
from cloudtrain.platforms.checks import Finding, ok, unknown, warning

TIMEOUT = 8.0
"""In seconds. It is short, because only the nodes may be able to reach the registry."""

_MANIFESTS = ", ".join(
    f"application/vnd.{name}+json"
    for name in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "docker.distribution.manifest.list.v2",
        "docker.distribution.manifest.v2",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def check_image(image: str, has_pull_secrets: bool) -> Finding:
    """The response of the image's registry to a client without credentials."""
    status, registry = _ask_registry(image), _registry_of(image)
    if status == 200:
        return ok(f"{image} is public")
    if status == 404:
        return warning(
            f"{registry} has no image {image}",
            "Unless the nodes have it already, check image_uri: the repository and the tag.",
        )
    if status not in (401, 403):
        return unknown(f"{image} cannot be looked up in {registry} from this machine")
    if has_pull_secrets:
        return unknown(f"{image} is private: the pull secrets decide")
    return warning(
        f"{registry} shows {image} only to those with credentials, or does not have it",
        "Unless the nodes have them (as on EKS for ECR): set platform_options.image_pull_secrets.",
    )


def _registry_of(image: str) -> str:
    """The host of an image's registry: ``docker.io`` if it names none."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _ask_registry(image: str) -> int:
    """The HTTP status of a request for the image's manifest without credentials; 0 without a response."""
    import httpx2 as httpx

    host = _registry_of(image)
    repository, _, digest = image.removeprefix(f"{host}/").partition("@")
    name, colon, tag = repository.rpartition(":")
    if colon and "/" not in tag:
        repository = name
    else:
        tag = ""
    if host == "docker.io":
        host, repository = (
            "registry-1.docker.io",
            repository if "/" in repository else f"library/{repository}",
        )
    is_local = _is_local(host)
    url = f"{'http' if is_local else 'https'}://{host}/v2/{repository}/manifests/{digest or tag or 'latest'}"
    try:
        with httpx.Client(timeout=TIMEOUT, headers={"Accept": _MANIFESTS}) as client:
            answer = client.head(url)
            challenge = answer.headers.get("WWW-Authenticate", "")
            is_bearer = answer.status_code == 401 and challenge.lower().startswith("bearer ")
            if is_bearer and (token := anonymous_token(client, challenge, is_local=is_local)):
                answer = client.head(url, headers={"Authorization": f"Bearer {token}"})
            return int(answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return 0


def anonymous_token(client: Any, challenge: str, *, is_local: bool) -> str:
    """The token that a registry issues to anonymous clients; empty if it issues none. Raises ValueError.

    Args:
        is_local: whether the registry is on this machine.
    """
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    # a remote registry must not redirect requests to a service of this machine
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
    given = document if isinstance(document, dict) else {}
    return str(given.get("token") or given.get("access_token") or "")


def _is_local(host: str) -> bool:
    return urlsplit(f"//{host}").hostname in ("localhost", "127.0.0.1")
