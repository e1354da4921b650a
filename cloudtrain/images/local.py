"""The images that an engine of this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.engine.client import engine_errors
from cloudtrain.images.catalogue import RECIPE_LABEL, Flavour

if TYPE_CHECKING:
    from docker import APIClient


@dataclass(frozen=True)
class LocalImage:
    """An image that was built from a flavour's recipe, here or elsewhere."""

    id: str
    name: str
    """One of its tags, or its id."""
    size: int
    """Bytes."""
    created: float
    """Seconds since the epoch."""


def find_local(client: APIClient, flavour: Flavour) -> LocalImage | None:
    """The newest image of this very flavour, known by its label: a pulled one has another name.

    Raises:
        PlatformError: the engine does not answer.
    """
    with engine_errors(f"image {flavour.name}"):
        # one label: Podman 4 finds nothing where it is asked for two
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
