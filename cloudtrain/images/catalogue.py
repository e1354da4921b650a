"""The images that can be built from ``containers/``: ``pytorch-cpu``, ``pytorch-cuda-mpi``, and so on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec.conversion import convert

CONTAINERS = Path(__file__).with_name("containers")
"""The folder ``containers/`` of the repository: a link in a clone, a copy in an installed cloudtrain."""

VARIANTS = ("", "mpi", "horovod")
"""The additions of an image to its framework: none, Open MPI, or Open MPI and Horovod."""

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
