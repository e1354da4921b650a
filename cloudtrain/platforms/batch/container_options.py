"""The options of a job for its container on a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.start.node_container import (
    APPTAINER,
    CHARLIECLOUD,
    ENROOT,
    OCI,
    PYXIS,
    Container,
    Mount,
)
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import AUTO_IMAGE

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_DOCKER = re.compile(r"[\w.:@/#-]+")
_FILES = {
    APPTAINER: (".sif", ".sqsh", ".img", ".simg"),
    CHARLIECLOUD: (".sqfs", ".sqsh", ".squash", ".squashfs"),
    ENROOT: (".sqsh", ".squashfs"),
    PYXIS: (".sqsh", ".squashfs"),
}
_PULLED = {
    APPTAINER: ("docker", "oras", "library", "shub", "https", "http"),
    ENROOT: ("docker", "dockerd", "podman"),
    PYXIS: ("docker", "dockerd"),
}


def image_reference(engine: str, image: str) -> str:
    """``image_uri`` in the form that ``engine`` takes: a path on the cluster, or a reference with its scheme.

    ``pytorch/pytorch:2.5`` and ``docker://nvcr.io/nvidia/pytorch:24.05-py3`` are Docker references.

    Raises InvalidJob.
    """
    if re.search(r"[\x00-\x20\x7f]", image) or image.startswith("-"):
        raise InvalidJob(f"image_uri: {image!r} is not the name of an image", hint=_forms(engine))
    scheme = _SCHEME.fullmatch(image)
    if image.startswith("/") or (scheme is None and image.endswith(_FILES.get(engine, ()))):
        return _path(engine, image)
    if engine == OCI:
        raise _refused(engine, image, "it is not the absolute path of an OCI bundle")
    if engine == CHARLIECLOUD:
        if scheme:
            raise _refused(engine, image, "ch-run pulls no images")
        return image  # a name in ch-image's storage
    kind, name = scheme.groups() if scheme else ("docker", image)
    if kind not in _PULLED[engine]:
        raise _refused(engine, image, f"it cannot pull from {kind}://")
    if kind == "docker" and not _DOCKER.fullmatch(name):
        raise _refused(engine, image, "it is not a reference of Docker")
    if kind == "docker" and engine in (ENROOT, PYXIS):
        name = _with_registry(name)
    return f"{kind}://{name}"


def _path(engine: str, image: str) -> str:
    if not image.startswith("/"):
        raise InvalidJob(
            f"image_uri: {image!r} is relative, and the nodes do not know to which folder",
            hint="Write its absolute path on the cluster.",
        )
    return image


def _with_registry(name: str) -> str:
    """``nvcr.io/nvidia/x`` as ``nvcr.io#nvidia/x``: Enroot reads everything before ``#`` as the registry."""
    first, slash, rest = name.partition("/")
    is_registry = slash and ("." in first or ":" in first or first == "localhost")
    return f"{first}#{rest}" if is_registry and "#" not in name else name


def _refused(engine: str, image: str, why: str) -> InvalidJob:
    return InvalidJob(f"image_uri: {engine} cannot use {image}: {why}", hint=_forms(engine))


def _forms(engine: str) -> str:
    return {
        APPTAINER: "Use a reference (docker://name:tag), a .sif file or a folder on the cluster.",
        CHARLIECLOUD: "Pull it on the cluster (ch-image pull NAME), and use that name, or the folder or SquashFS file "
        "that ch-convert makes.",
        ENROOT: "Use a reference (docker://name:tag) or a .sqsh file on the cluster.",
        PYXIS: "Use a reference (docker://name:tag) or a .sqsh file on the cluster.",
        OCI: "Use the folder with config.json on the cluster. skopeo and umoci make one of an image.",
    }[engine]


NONE = "none"


def container_body(
    job: TrainingJob, engine: str | None, mounts: Sequence[str], options: Sequence[str], home: bool
) -> dict[str, Any]:
    """The field ``container`` of a request, in a mapping; empty for a job without a container. Raises InvalidJob."""
    if engine == NONE:
        return {}
    if engine is None:
        if job.image_uri:
            raise InvalidJob(
                f"image_uri: which container engine starts {job.image_uri} on the nodes?",
                hint="Set platform_options.container: apptainer, pyxis, enroot, charliecloud or oci; "
                "or none to ignore the image.",
            )
        if mounts or options or home:
            raise InvalidJob(
                "platform_options: container_mounts, container_options and container_home need a container",
                hint="Set platform_options.container and image_uri.",
            )
        return {}
    if not job.image_uri or job.image_uri == AUTO_IMAGE:
        raise InvalidJob(
            f"platform_options.container: {engine} needs an image_uri",
            hint="Name an image; or set container: none to run on the nodes themselves.",
        )
    if home and engine in (ENROOT, OCI):
        raise InvalidJob(
            f"platform_options.container_home: {engine} has no option for it",
            hint="Mount the folder itself with container_mounts.",
        )
    for text in mounts:
        _check_mount(engine, text)
    found = Container(engine, image_reference(engine, job.image_uri), tuple(mounts), tuple(options), home)
    return {"container": found.to_body()}


def _check_mount(engine: str, text: str) -> None:
    try:
        mount = Mount.parse(text)
    except ValueError as error:
        raise InvalidJob(
            f"platform_options.container_mounts: {text!r}: {error}",
            hint="Write /here, /here:/there or /here:/there:ro.",
        ) from None
    if mount.read_only and engine == CHARLIECLOUD:
        raise InvalidJob(
            f"platform_options.container_mounts: {text!r}: ch-run has no read-only mounts",
            hint="Leave out :ro.",
        )
