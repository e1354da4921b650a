"""Finds platforms by name, and imports only the requested one.

Third parties add platforms with an entry point in the group ``cloudtrain.platforms``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cloudtrain._system.processes import RUNS_JOBS, USE_WSL
from cloudtrain.errors import PlatformError, UnknownPlatform, nearest
from cloudtrain.platforms.base import Platform

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

GROUP = "cloudtrain.platforms"

BUILT_IN = {
    "cobalt": "cloudtrain.platforms.pbs:CobaltPlatform",
    "container": "cloudtrain.platforms.container:ContainerPlatform",
    "hosts": "cloudtrain.platforms.hosts:HostsPlatform",
    "kubernetes": "cloudtrain.platforms.kubernetes:KubernetesPlatform",
    "local": "cloudtrain.platforms.local:LocalPlatform",
    "lsf": "cloudtrain.platforms.lsf:LsfPlatform",
    "pbs": "cloudtrain.platforms.pbs:PbsPlatform",
    "sagemaker": "cloudtrain.platforms.sagemaker:SageMakerPlatform",
    "slurm": "cloudtrain.platforms.slurm:SlurmPlatform",
    "torque": "cloudtrain.platforms.pbs:TorquePlatform",
}
"""The built-in platforms, which can be found without reading the metadata of installed packages."""

OTHER_NAMES = {
    "container": ("containers", "docker", "podman"),
    "hosts": ("host", "mpi", "mpirun", "ssh"),
    "kubernetes": ("aks", "eks", "gke", "k3s", "k8s", "kube", "kubeflow", "openshift"),
    "local": ("laptop", "localhost"),
    "lsf": ("bsub",),
    "pbs": ("openpbs", "pbspro", "qsub"),
    "sagemaker": ("aws", "aws-batch", "batch"),
    "slurm": ("sbatch", "srun"),
}
"""By platform: other names that a new user may try."""

ON_THIS_MACHINE = ("container", "hosts", "local")
"""The platforms whose jobs run, or are supervised, on the machine that submits them."""

PACKAGE_HINT = "This is an error in the package that provides the platform."

PROTOCOL = ("render", "submit", "describe", "logs", "stop", "list")
"""The methods that every platform has."""


def platform_names() -> list[str]:
    """The built-in platforms and those of installed packages."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def get_platform(name: str) -> Platform:
    """The platform called ``name``.

    Raises:
        UnknownPlatform: no platform has this name, or it cannot be imported; the message has the reason.
        PlatformError: the platform does not run on this system, or it is a third party's and lacks a part of the
            protocol `Platform`.
    """
    if name in ON_THIS_MACHINE and not RUNS_JOBS:
        raise PlatformError(
            f"the platform {name} does not run on Windows",
            hint=f"{USE_WSL}; or choose a platform that is not this machine, such as sagemaker.",
        )
    try:
        if name in BUILT_IN:
            return _built_in_type(name)()
        for point in _entry_points():
            if point.name == name:
                return _load(point)
    except ImportError as error:
        raise UnknownPlatform(f"platform {name!r} cannot be loaded: {error}") from error
    raise unknown_platform(name)


def unknown_platform(name: str) -> UnknownPlatform:
    """The error for ``name``, which no platform has. Its hint suggests one, or lists all."""
    hint = nearest(name, platform_names(), OTHER_NAMES)
    return UnknownPlatform(
        f"unknown platform {name!r}", hint=f"{hint} To see what each one is: cloudtrain platforms"
    )


def built_in_types() -> Iterator[tuple[str, type[Platform]]]:
    """The names and the classes of the built-in platforms. Imports all of them."""
    return ((name, _built_in_type(name)) for name in BUILT_IN)


def _built_in_type(name: str) -> type[Platform]:
    module, _, attribute = BUILT_IN[name].partition(":")
    return cast(type[Platform], getattr(import_module(module), attribute))


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    return iter(entry_points(group=GROUP))


def _load(point: EntryPoint) -> Platform:
    """The platform of a third party, checked against the protocol."""
    try:
        factory: Any = point.load()
    except AttributeError as error:
        raise UnknownPlatform(f"platform {point.name!r} cannot be loaded: {error}") from error
    if not callable(factory):
        raise PlatformError(f"platform {point.name!r}: {point.value} is not a class", hint=PACKAGE_HINT)
    platform = factory()
    missing = [f"{method}()" for method in PROTOCOL if not callable(getattr(platform, method, None))]
    if missing:
        raise PlatformError(f"platform {point.name!r} lacks {' and '.join(missing)}", hint=PACKAGE_HINT)
    if not isinstance(getattr(platform, "name", None), str):
        raise PlatformError(f"platform {point.name!r} lacks the attribute name", hint=PACKAGE_HINT)
    return cast(Platform, platform)


def check_result(platform: Platform, method: str, result: T, kind: type[T]) -> T:
    """``result``, which ``method`` of ``platform`` returned. Raises PlatformError if it is not a ``kind``."""
    if isinstance(result, kind):
        return result
    found = "None" if result is None else f"a {type(result).__name__}"
    raise PlatformError(
        f"platform {platform.name!r}: {method} returned {found}, expected a {kind.__name__}",
        hint=PACKAGE_HINT,
    )
