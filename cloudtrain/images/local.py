"""The images in an engine on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.engine.client import engine_errors
from cloudtrain.images.catalogue import RECIPE_LABEL, Flavour

if TYPE_CHECKING:
    from docker import APIClient


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
