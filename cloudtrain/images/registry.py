"""Images in registries. For Amazon ECR, also logs in and creates repositories."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code
from cloudtrain.engine.client import engine_errors
from cloudtrain.errors import PlatformError

if TYPE_CHECKING:
    from docker import APIClient

Progress = Callable[[int], None]
"""Called with the number of bytes that were sent since the last call."""


@dataclass(frozen=True)
class Registry:
    """A registry to push to, for example ``registry.example.com/team``."""

    address: str
    auth: Mapping[str, str] | None = None
    """``username`` and ``password``; None for the credentials of ``docker login``."""


@dataclass(frozen=True)
class EcrImage:
    """An image in ECR, with one of its tags."""

    uri: str
    digest: str


def ecr_registry(aws: Aws) -> Registry:
    """The account's registry in its region, with credentials for 12 hours. Raises PlatformError."""
    with aws_errors("the login to ECR"):
        answer = aws.client("ecr").get_authorization_token()["authorizationData"][0]
    user, _, password = base64.b64decode(answer["authorizationToken"]).decode().partition(":")
    address = answer["proxyEndpoint"].removeprefix("https://")
    return Registry(address, {"username": user, "password": password})


def make_ecr_repository(aws: Aws, repository: str) -> bool:
    """Create the repository if it does not exist. Returns whether it was created. Raises PlatformError."""
    if _ecr_uri(aws, repository):
        return False
    with aws_errors(f"the ECR repository {repository}"):
        client = aws.client("ecr")
        try:
            client.create_repository(repositoryName=repository)
        except client.exceptions.RepositoryAlreadyExistsException:
            return False
    return True


def ecr_images(aws: Aws, repository: str) -> dict[str, EcrImage]:
    """The images of a repository by tag; empty if there is no such repository. Raises PlatformError."""
    uri = _ecr_uri(aws, repository)
    if uri is None:
        return {}
    with aws_errors(f"the ECR repository {repository}"):
        pages = aws.client("ecr").get_paginator("describe_images").paginate(repositoryName=repository)
        return {
            tag: EcrImage(f"{uri}:{tag}", image["imageDigest"])
            for page in pages
            for image in page["imageDetails"]
            for tag in image.get("imageTags", ())
        }


def push_image(
    client: APIClient, image: str, registry: Registry, target: str, progress: Progress | None = None
) -> tuple[str, str]:
    """Push a local image.

    Args:
        image: its id, or any of its names.
        target: its name in the registry, for example ``cloudtrain/pytorch:2.13.0-cpu-0123456789ab``.

    Returns:
        The URI of the image in the registry, and its digest.

    Raises:
        PlatformError: the registry refuses the image, or cannot be reached.
    """
    uri = f"{registry.address}/{target}"
    with engine_errors(f"push of {uri}"):
        is_named = uri in (client.inspect_image(image).get("RepoTags") or ())
        client.tag(image, *uri.rsplit(":", 1))
        try:
            return uri, _push(client, uri, registry, progress)
        except BaseException:
            if not is_named:
                client.remove_image(uri)
            raise


def _push(client: APIClient, uri: str, registry: Registry, progress: Progress | None) -> str:
    """Push the image named ``uri``. Returns its digest in the registry."""
    repository, tag = uri.rsplit(":", 1)
    auth = dict(registry.auth) if registry.auth else None
    digest, sent = "", dict[str, int]()
    for record in client.push(repository, tag, auth_config=auth, stream=True, decode=True):
        if "error" in record:
            raise PlatformError(
                f"push of {uri}: {record['error'].strip()}",
                hint="Check the registry's address, and that you are logged in: docker login.",
            )
        layer, done = record.get("id"), record.get("progressDetail", {}).get("current")
        if progress and layer and done:
            progress(done - sent.get(layer, 0))
            sent[layer] = done
        digest = record.get("aux", {}).get("Digest", digest)
    return digest


def _ecr_uri(aws: Aws, repository: str) -> str | None:
    """The URI of a repository; None if it does not exist."""
    from botocore.exceptions import ClientError

    with aws_errors(f"the ECR repository {repository}"):
        try:
            answer = aws.client("ecr").describe_repositories(repositoryNames=[repository])
        except ClientError as error:
            if error_code(error) != "RepositoryNotFoundException":
                raise
            return None
    return str(answer["repositories"][0]["repositoryUri"])
