"""Finds platforms by name, and imports only the requested one.

Third parties add platforms with an entry point in the group ``cloudtrain.platforms``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cloudtrain.errors import UnknownPlatform, nearest
from cloudtrain.platforms.base import Platform

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "cloudtrain.platforms"

BUILT_IN = {
    "container": "cloudtrain.platforms.container:ContainerPlatform",
    "local": "cloudtrain.platforms.local:LocalPlatform",
    "sagemaker": "cloudtrain.platforms.sagemaker:SageMakerPlatform",
}
"""The built-in platforms, which can be found without reading the metadata of installed packages."""


def platform_names() -> list[str]:
    """The built-in platforms and those of installed packages."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def get_platform(name: str) -> Platform:
    """The platform called ``name``.

    Raises:
        UnknownPlatform: no platform has this name, or it cannot be imported; the message says why.
    """
    target = BUILT_IN.get(name)
    try:
        if target:
            module, _, attribute = target.partition(":")
            return cast(Platform, getattr(import_module(module), attribute)())
        for point in _entry_points():
            if point.name == name:
                return _load(point)
    except ImportError as error:
        raise UnknownPlatform(f"platform {name!r} cannot be loaded: {error}") from error
    raise UnknownPlatform(f"there is no platform {name!r}", hint=nearest(name, platform_names()))


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    return iter(entry_points(group=GROUP))


def _load(point: EntryPoint) -> Platform:
    factory: Any = point.load()
    return cast(Platform, factory())
