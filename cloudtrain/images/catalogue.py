"""The images that ``containers/`` makes, by their names: ``pytorch-cpu``, ``pytorch-cuda-horovod``, ..."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from cloudtrain.errors import InvalidJob, nearest

CONTAINERS = Path(__file__).with_name("containers")
"""The folder ``containers/`` of the repository: a link here, a copy in an installed cloudtrain."""

VARIANTS = ("", "mpi", "horovod")
"""What an image has besides its framework: nothing, Open MPI, or Open MPI and Horovod."""

RECIPE_LABEL = "cloudtrain.recipe"
"""The label by which an image is known, however it is tagged."""


class _Device(Struct, frozen=True, forbid_unknown_fields=True):
    python: str
    base: str
    packages: list[str]
    build_base: str = ""
    index: str = ""
    system: list[str] = []


class _Framework(Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    devices: dict[str, _Device]


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """``images.yaml``."""

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
    """``cpu`` or ``cuda``."""
    variant: str
    """One of `VARIANTS`."""
    python: str
    """The version of the base's Python: ``3.11``."""
    base: str
    build_args: Mapping[str, str]
    """Of the Dockerfile, all but the bases."""
    build_base: str
    """What the packages are built on: the base, or one with compilers for CUDA."""
    recipe: str
    """A digest of all that makes the image but its bases' content and the runtime, which jobs bring along."""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.framework, self.device, self.variant)))

    @property
    def repository(self) -> str:
        """``cloudtrain/pytorch``: in every registry."""
        return f"cloudtrain/{self.framework}"

    @property
    def tag(self) -> str:
        """``2.13.0-cpu-0123456789ab``: another recipe has another tag."""
        return "-".join(filter(None, (self.version, self.device, self.variant, self.recipe)))

    @property
    def image(self) -> str:
        return f"{self.repository}:{self.tag}"

    @property
    def build_command(self) -> str:
        """The command line that makes it."""
        is_pinned = self.version == _catalogue().frameworks[self.framework].version
        return (
            f"cloudtrain image build {self.name}{'' if is_pinned else f' --framework-version {self.version}'}"
        )


def flavours() -> list[Flavour]:
    """All images, each with the version of its framework that ``images.yaml`` pins."""
    return [
        _flavour(framework, device, variant)
        for framework, about in _catalogue().frameworks.items()
        for device in about.devices
        for variant in VARIANTS
        if not (framework == "python" and variant == "horovod")
    ]


def find_flavour(name: str, version: str | None = None) -> Flavour:
    """The image called ``name``, with another version of its framework than the pinned one if that is given.

    A short version, ``2.13``, is the pinned one if that begins so.

    Raises:
        InvalidJob: there is none of this name.
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
    packages = [
        *(package.replace("{version}", version) for package in about.packages),
        *(catalogue.mpi_packages if variant else ()),
    ]
    arguments = {
        "FRAMEWORK": framework,
        "DEVICE": device,
        "VARIANT": variant,
        "PACKAGES": " ".join(packages),
        "INDEX": about.index,
        "SYSTEM": " ".join(about.system),
        "HOROVOD": catalogue.horovod,
        "EFA_INSTALLER": catalogue.efa_installer if device == "cuda" else "",
    }
    bases = (about.base, about.build_base if about.build_base and variant == "horovod" else about.base)
    digest = hashlib.sha256(msgspec.json.encode([_files(), arguments, bases], order="sorted"))
    return Flavour(
        framework,
        version,
        device,
        variant,
        about.python,
        bases[0],
        arguments,
        bases[1],
        digest.hexdigest()[:12],
    )


@cache
def _catalogue() -> _Catalogue:
    return msgspec.convert(yaml.safe_load((CONTAINERS / "images.yaml").read_bytes()), _Catalogue)


@cache
def _files() -> dict[str, str]:
    """What the Dockerfile copies, and itself, by their hashes."""
    paths = [CONTAINERS / "Dockerfile", CONTAINERS / "train", *sorted((CONTAINERS / "steps").iterdir())]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
