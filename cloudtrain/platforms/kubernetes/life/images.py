"""Why an image cannot be pulled: what the kubelet and the registry say, as sentences."""

from __future__ import annotations

import re

from cloudtrain.platforms.kubernetes.life.why import CONFIGURATION_SECONDS, NETWORK_SECONDS, Why

PULL_ERRORS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "ImageInspectError",
}
"""Reasons why a container waits for its image."""

_PREFIXES = re.compile(
    r"^(?:Error: |ErrImagePull: |ImagePullBackOff: |Back-off pulling image \"[^\"]*\"(?:: )?|"
    r"Failed to pull image \"[^\"]*\": |"
    r"rpc error: code = \w+ desc = |failed to pull and unpack image \"[^\"]*\": |failed to copy: |"
    r"failed to resolve reference \"[^\"]*\": |failed to resolve image \"[^\"]*\": |Error response from daemon: |"
    r"initializing source \S+: |httpReadSeeker: |failed open: )"
)
_LONGEST = 300


def registry_words(message: str) -> str:
    """The answer of the registry: the message of the kubelet without the names of the layers that passed it on.

    >>> registry_words('rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/a/b:c": not found')
    'not found'
    """
    words = message.strip()
    while match := _PREFIXES.match(words):
        words = words[match.end() :].strip()
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


_CREDENTIALS = (
    "Check its name. For a private image, name a Secret with credentials in platform_options.image_pull_secrets: "
    "kubectl create secret docker-registry NAME --docker-server=... --docker-username=... --docker-password=..."
)
_CAUSES: tuple[tuple[str, str, str, float | None], ...] = (
    (
        r"toomanyrequests|too many requests|\b429\b|pull rate limit|HAP429",
        "the registry limits how often image {image} may be pulled",
        "It is tried again until the limit allows it. With credentials (platform_options.image_pull_secrets) or a "
        "mirror of the image, the limit is higher.",
        None,
    ),
    (
        r"no match for platform|no matching manifest|exec format error",
        "image {image} does not exist for the processors of the node",
        "Build it for them, for example: docker build --platform linux/amd64",
        CONFIGURATION_SECONDS,
    ),
    (
        r"pull access denied|may require (?:authorization|'?docker login)|insufficient_scope|unauthorized|"
        r"authentication required|access (?:to the resource )?is denied|\b40[13]\b|no basic auth|forbidden|denied:",
        "the registry denies access to image {image}, or it does not exist",
        _CREDENTIALS,
        CONFIGURATION_SECONDS,
    ),
    (
        r"no such host|server misbehaving",
        "the registry of image {image} has no address",
        "Check the name of the registry, and the DNS of the nodes.",
        NETWORK_SECONDS,
    ),
    (
        r"x509|certificate|HTTP response to HTTPS client",
        "the nodes do not trust the registry of image {image}",
        "The container runtime of the nodes must know the registry's certificate, or that it has none.",
        NETWORK_SECONDS,
    ),
    (
        r"no space left",
        "a node has no disk space for image {image}",
        "Ask the administrators of the cluster, or use a smaller image.",
        NETWORK_SECONDS,
    ),
    (
        r"manifest unknown|name unknown|not found|does not exist|NotFound",
        "image {image} does not exist",
        "Check its name and its tag.",
        CONFIGURATION_SECONDS,
    ),
    (
        r"timeout|timed out|connection refused|connection reset|unreachable|EOF|deadline exceeded|50[0-4]",
        "the registry of image {image} does not answer",
        "It is tried again.",
        NETWORK_SECONDS,
    ),
)


def why_no_image(reason: str, message: str, image: str) -> Why:
    """The sentence for a container that waits for its image.

    Args:
        reason: of the container's state: ``ErrImagePull``, ``ImagePullBackOff``.
        message: what the kubelet says about the cause.
    """
    words = registry_words(message)
    if reason == "InvalidImageName":
        return Why(f"{image!r} is not the name of an image", "Correct the image of the job.", patience=0.0)
    if reason == "ErrImageNeverPull":
        return Why(
            f"image {image} is not on the node, and may not be pulled",
            "Set another image_pull_policy, or load the image on the nodes.",
            CONFIGURATION_SECONDS,
        )
    if reason == "SignatureValidationFailed":
        return Why(f"the signature of image {image} is not valid ({words})", "", CONFIGURATION_SECONDS)
    for pattern, sentence, advice, patience in _CAUSES:
        if words and re.search(pattern, words, re.IGNORECASE):
            return Why(f"{sentence.format(image=image)} ({words})", advice, patience)
    said = f" ({words})" if words else ""
    return Why(f"image {image} cannot be pulled{said}", "It is tried again.", NETWORK_SECONDS)
