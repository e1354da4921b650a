"""cloudtrain's images: lists, builds and pushes them, and selects the image for a job."""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain.spec.names import AUTO_IMAGE as AUTO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.images.build import BuildOptions as BuildOptions, build_image as build_image
    from cloudtrain.images.catalogue import (
        Flavour as Flavour,
        LocalImage as LocalImage,
        ecr_image as ecr_image,
        find_flavour as find_flavour,
        find_local as find_local,
        flavour_of as flavour_of,
        flavours as flavours,
        local_image as local_image,
    )
    from cloudtrain.images.registry import (
        EcrImage as EcrImage,
        Registry as Registry,
        ecr_images as ecr_images,
        ecr_registry as ecr_registry,
        make_ecr_repository as make_ecr_repository,
        push_image as push_image,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.images.build": "BuildOptions build_image",
        "cloudtrain.images.catalogue": (
            "Flavour LocalImage ecr_image find_flavour find_local flavour_of flavours local_image"
        ),
        "cloudtrain.images.registry": "EcrImage Registry ecr_images ecr_registry make_ecr_repository push_image",
    },
)
__all__ += ["AUTO"]
