"""The options of a job for its container on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.container_image import image_reference
from cloudtrain.runtime.start.node_container import CHARLIECLOUD, ENROOT, OCI, Container, Mount
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import AUTO_IMAGE

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
