"""Pulls images."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from cloudtrain.engine.client import EngineClient, engine_errors
from cloudtrain.errors import PlatformError

_ECR = re.compile(r"(?P<host>\d{12}\.dkr\.ecr\.(?P<region>[\w-]+)\.amazonaws\.com(?:\.cn)?)/")
_DENIED = ("denied", "unauthorized", "authentication required", "no basic auth")
_NOT_THERE = ("manifest unknown", "not found", "does not exist")


class PullProgress(Protocol):
    """Counts the bytes of a pull."""

    def add_total(self, count: int) -> None:
        """Announce ``count`` more bytes to download."""

    def add(self, count: int) -> None:
        """Report that ``count`` more bytes were downloaded."""


def ensure_image(
    client: EngineClient,
    image: str,
    pull: str,
    phases: Callable[[str], AbstractContextManager[PullProgress]],
    check: Callable[[], object] = lambda: None,
) -> None:
    """Pull ``image`` if ``pull`` (missing, always, never) requires it.

    Args:
        phases: begins the phase of the given name, which ends with the block.
        check: called at intervals. An exception that it raises ends the pull.

    Raises:
        PlatformError: the image does not exist, or access to it is denied; the hint is how to log in.
    """
    if pull != "always" and client.has_image(image):
        return
    if pull == "never":
        raise PlatformError(
            f"the engine has no image {image}", hint="Build or pull it, or leave out platform_options.pull."
        )
    try:
        with phases("pull") as phase, engine_errors(f"image {image} cannot be pulled"):
            _pull(client, image, phase, check)
    except PlatformError as error:
        raise PlatformError(error.message, hint=error.hint or pull_hint(image, error.message)) from error


def _pull(client: EngineClient, image: str, phase: PullProgress, check: Callable[[], object]) -> None:
    done: dict[str, int] = {}  # bytes of each layer
    for update in client.api.pull(*_name_and_tag(image), stream=True, decode=True):
        check()
        if "error" in update:
            raise PlatformError(f"image {image} cannot be pulled: {update['error']}")
        progress = update.get("progressDetail") or {}
        if update.get("status") != "Downloading" or not progress.get("total"):
            continue
        layer, current = update["id"], progress["current"]
        if layer not in done:
            phase.add_total(progress["total"])
        phase.add(current - done.get(layer, 0))
        done[layer] = current


def _name_and_tag(image: str) -> tuple[str, str]:
    """The image with a tag. Without one, an engine would pull all tags."""
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(image)
    return name, tag or "latest"


def pull_hint(image: str, message: str) -> str:
    """A hint for the error ``message`` of a registry."""
    words = message.lower()
    ecr = _ECR.match(image)
    if ecr:
        token = f"aws ecr get-login-password --region {ecr['region']}"
        login = f"{token} | docker login --username AWS --password-stdin {ecr['host']}"
    else:
        registry = image.split("/")[0]
        login = f"docker login {registry}" if "." in registry else "docker login"
    if any(word in words for word in _DENIED):
        return f"The image does not exist, or you have no access to it. Log in: {login}"
    if any(word in words for word in _NOT_THERE):
        return "Check the name and the tag."
    return "Check that the registry can be reached from here."
