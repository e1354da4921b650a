"""``image_uri="auto"``: cloudtrain's image for a job, from its framework, version, GPUs and distribution."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.engine.client import engine_errors
from cloudtrain.errors import InvalidJob
from cloudtrain.images.catalogue import RECIPE_LABEL, Flavour, find_flavour, frameworks
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from docker import APIClient

    from cloudtrain.aws.aws import Aws


@dataclass(frozen=True)
class LocalImage:
    """An image that was built from a flavour's recipe, on this machine or another."""

    id: str
    name: str
    """One of its tags, or its id."""
    size: int
    """In bytes."""
    created: float
    """In seconds since the epoch."""


def find_local(client: APIClient, flavour: Flavour) -> LocalImage | None:
    """The newest image of this flavour. It is found by its label, because a pulled image has another name.

    Raises:
        PlatformError: the engine does not respond.
    """
    with engine_errors(f"image {flavour.name}"):
        # only one label: Podman 4 finds nothing with two
        found = client.images(filters={"label": f"{RECIPE_LABEL}={flavour.recipe}"})
    if not found:
        return None
    image = max(found, key=lambda item: (item["Created"], bool(item.get("RepoTags"))))
    names = [name for name in image.get("RepoTags") or () if name != "<none>:<none>"]
    return LocalImage(
        image["Id"],
        flavour.image if flavour.image in names else (names or [image["Id"]])[0],
        image["Size"],
        image["Created"],
    )


_OWN_IMAGE = "Or set the image: image_uri='...'."


def flavour_of(job: TrainingJob, *, gpu: bool) -> Flavour:
    """The flavour of the image for ``job``.

    Args:
        gpu: whether its hosts have GPUs.

    Raises:
        InvalidJob: the job has no framework, or there is no matching image.
    """
    known = frameworks()
    if job.framework is None or job.framework not in known:
        raise InvalidJob(
            f"image_uri: 'auto' needs a framework that cloudtrain has images of, not {job.framework}",
            hint=f"For example: framework='pytorch'. To list the images: cloudtrain image list. {_OWN_IMAGE}",
        )
    devices, variant = known[job.framework], _variant(job)
    device = _cuda_device(job, devices) if gpu else "cpu"
    if device not in devices:
        raise InvalidJob(f"image_uri: cloudtrain has no image of {job.framework} for GPUs", hint=_OWN_IMAGE)
    if gpu and variant == "horovod":
        raise InvalidJob(
            "image_uri: cloudtrain has no image with the real Horovod for GPUs",
            hint=f"Leave implementation out: cloudtrain's own horovod uses GPUs. {_OWN_IMAGE}",
        )
    name = "-".join(filter(None, (job.framework, device, variant)))
    flavour = find_flavour(name, job.framework_version)
    python = f"py{flavour.python.replace('.', '')}"
    if job.py_version not in (None, "py3", python):
        raise InvalidJob(
            f"py_version: cloudtrain's image {name} has {python}, not {job.py_version}",
            hint=f"Remove py_version. {_OWN_IMAGE}",
        )
    return flavour


def local_image(job: TrainingJob, client: APIClient, *, gpu: bool) -> str:
    """The name of the image for ``job`` in the engine.

    Raises:
        InvalidJob: as in `flavour_of`, or the engine does not have the image; the hint shows how to build it.
        PlatformError: the engine does not respond.
    """
    flavour = flavour_of(job, gpu=gpu)
    found = find_local(client, flavour)
    if found is None:
        raise InvalidJob(
            f"image_uri: the image {flavour.image} is not on this machine",
            hint=f"Build it: {flavour.build_command}",
        )
    return found.name


def ecr_image(job: TrainingJob, aws: Aws, *, gpu: bool) -> str:
    """The URI of the image for ``job`` in the account's ECR.

    Raises:
        InvalidJob: as in `flavour_of`, or ECR does not have the image; the hint shows how to push it.
        PlatformError: ECR does not respond, or denies access.
    """
    from cloudtrain.images.registry import ecr_images

    flavour = flavour_of(job, gpu=gpu)
    found = ecr_images(aws, flavour.repository).get(flavour.tag)
    if found is None:
        raise InvalidJob(
            f"image_uri: the image {flavour.image} is not in ECR, in {aws.region} of this account",
            hint=f"Build it and push it: {flavour.build_command} --push",
        )
    return found.uri


def _cuda_device(job: TrainingJob, devices: Collection[str]) -> str:
    """The flavour's device for the GPUs of the job: V100 needs an older CUDA than others."""
    has_v100 = any(re.match(r"ml[._]p3(?:dn)?[._]", kind) for kind in job.instance_types)
    return "cuda126" if has_v100 and "cuda126" in devices else "cuda"


def _variant(job: TrainingJob) -> str:
    distribution = job.distribution
    enabled = distribution.enabled if distribution else {}
    if distribution and distribution.horovod and "horovod" in enabled:
        return "horovod" if distribution.horovod.implementation == "horovod" else ""
    return "mpi" if "mpi" in enabled else ""
