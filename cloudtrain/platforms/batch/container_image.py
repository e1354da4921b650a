"""The forms of image references, which differ between the container engines of clusters."""

from __future__ import annotations

import re

from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.start.node_container import APPTAINER, CHARLIECLOUD, ENROOT, OCI, PYXIS

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
    """``image_uri`` in the form that ``engine`` takes: a path of the cluster, or a reference with its scheme.

    ``pytorch/pytorch:2.5`` and ``docker://nvcr.io/nvidia/pytorch:24.05-py3`` are references of Docker.

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
        return image  # a name in the storage of ch-image
    kind, name = scheme.groups() if scheme else ("docker", image)
    if kind not in _PULLED[engine]:
        raise _refused(engine, image, f"it does not know {kind}://")
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
    """``nvcr.io/nvidia/x`` as ``nvcr.io#nvidia/x``: Enroot takes everything before ``#`` for the registry."""
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
