"""The images that can be built from ``containers/``, such as ``pytorch-cpu``; and the one that ``auto`` selects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml
from msgspec import Struct

from cloudtrain.engine.client import engine_errors
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.conversion import convert

if TYPE_CHECKING:
    from docker import APIClient

    from cloudtrain.aws.aws import Aws


CONTAINERS = Path(__file__).with_name("containers")
"""The folder ``containers/`` of the repository: a link in a clone, a copy in an installed cloudtrain."""

VARIANTS = ("", "mpi", "horovod")
"""The software that an image adds to its framework: none, Open MPI, or Open MPI and Horovod."""

RECIPE_LABEL = "cloudtrain.recipe"
"""The label that identifies an image, independent of its tags."""


class _Device(Struct, frozen=True, forbid_unknown_fields=True):
    python: str
    base: str
    packages: list[str]
    index: str = ""
    system: list[str] = []
    cuda: str = ""
    """The CUDA that the packages are built for, as in their versions: ``cu130``."""
    before: dict[str, str] = {}
    """The CUDA for releases of the framework before the given ones."""
    older_base: str = ""
    """The base for these releases."""


class _Framework(Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    devices: dict[str, _Device]


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``images.yaml``."""

    frameworks: dict[str, _Framework]
    mpi_packages: list[str]
    horovod: str
    efa_installer: str


@dataclass(frozen=True)
class Flavour:
    """One image that can be built."""

    framework: str
    version: str
    device: str
    """``cpu``, ``cuda``, or ``cuda126`` for GPUs and drivers that the CUDA of ``cuda`` does not support."""
    variant: str
    """One of `VARIANTS`."""
    python: str
    """The version of the base's Python: ``3.11``."""
    base: str
    build_args: Mapping[str, str]
    """The arguments of the Dockerfile, except the bases."""
    recipe: str
    """The digest of everything that defines the image, except the content of its base and the bundled runtime."""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.framework, self.device, self.variant)))

    @property
    def repository(self) -> str:
        """The repository in every registry, for example ``cloudtrain/pytorch``."""
        return f"cloudtrain/{self.framework}"

    @property
    def tag(self) -> str:
        """The tag, which includes the recipe, for example ``2.13.0-cpu-0123456789ab``."""
        return "-".join(filter(None, (self.version, self.device, self.variant, self.recipe)))

    @property
    def image(self) -> str:
        return f"{self.repository}:{self.tag}"

    @property
    def build_command(self) -> str:
        """The command that builds the image."""
        is_pinned = self.version == _catalogue().frameworks[self.framework].version
        return (
            f"cloudtrain image build {self.name}{'' if is_pinned else f' --framework-version {self.version}'}"
        )


def flavours() -> list[Flavour]:
    """All flavours, with the framework versions that ``images.yaml`` pins."""
    return [
        _flavour(framework, device, variant)
        for framework, about in _catalogue().frameworks.items()
        for device in about.devices
        for variant in VARIANTS
        if not (variant == "horovod" and (framework == "python" or device != "cpu"))
    ]


def find_flavour(name: str, version: str | None = None) -> Flavour:
    """The flavour called ``name``, with the pinned version of its framework or with ``version``.

    A prefix of the pinned version, for example ``2.13``, selects the pinned version.

    Raises:
        InvalidJob: there is no such flavour.
    """
    known = {flavour.name: flavour for flavour in flavours()}
    if name not in known:
        raise InvalidJob(f"there is no image {name!r}", hint=nearest(name, known))
    found = known[name]
    if version is None or found.version == version or found.version.startswith(f"{version}."):
        return found
    return _flavour(found.framework, found.device, found.variant, version)


def frameworks() -> Mapping[str, list[str]]:
    """The devices of each framework."""
    return {name: list(about.devices) for name, about in _catalogue().frameworks.items()}


def _flavour(framework: str, device: str, variant: str, version: str | None = None) -> Flavour:
    catalogue = _catalogue()
    about = catalogue.frameworks[framework].devices[device]
    version = version or catalogue.frameworks[framework].version
    cuda = _cuda(about, version)
    base = about.base if cuda == about.cuda else about.older_base or about.base
    packages = [
        *(package.replace("{version}", version).replace("{cuda}", cuda) for package in about.packages),
        *(catalogue.mpi_packages if variant else ()),
    ]
    arguments = {
        "FRAMEWORK": framework,
        "DEVICE": "cpu" if device == "cpu" else "cuda",
        "VARIANT": variant,
        "PACKAGES": " ".join(packages),
        "INDEX": about.index.replace("{cuda}", cuda),
        "SYSTEM": " ".join(about.system),
        "HOROVOD": catalogue.horovod,
        "EFA_INSTALLER": catalogue.efa_installer if device != "cpu" else "",
    }
    digest = hashlib.sha256(msgspec.json.encode([_files(), arguments, base], order="sorted"))
    return Flavour(
        framework,
        version,
        device,
        variant,
        about.python,
        base,
        arguments,
        digest.hexdigest()[:12],
    )


def _cuda(about: _Device, version: str) -> str:
    """The CUDA that the framework's release is built for."""
    fitting = [first for first in about.before if _numbers(version) < _numbers(first)]
    return about.before[min(fitting, key=_numbers)] if fitting else about.cuda


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@cache
def _catalogue() -> _Catalogue:
    return convert(yaml.safe_load((CONTAINERS / "images.yaml").read_bytes()), _Catalogue)


@cache
def _files() -> dict[str, str]:
    """The hashes of the Dockerfile and of the files that it copies."""
    paths = [CONTAINERS / "Dockerfile", CONTAINERS / "train", *sorted((CONTAINERS / "steps").iterdir())]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


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
