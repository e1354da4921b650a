"""cloudtrain's images: lists, builds and pushes them, and selects the image for a job."""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain.spec.names import AUTO_IMAGE as AUTO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.images.auto import LocalImage, ecr_image, find_local, flavour_of, local_image
    from cloudtrain.images.build import BuildOptions, build_image
    from cloudtrain.images.catalogue import Flavour, find_flavour, flavours
    from cloudtrain.images.registry import (
        EcrImage,
        Registry,
        ecr_images,
        ecr_registry,
        make_ecr_repository,
        push_image,
    )

__getattr__, __dir__ = lazy(
    __name__,
    {
        "BuildOptions": "cloudtrain.images.build",
        "EcrImage": "cloudtrain.images.registry",
        "Flavour": "cloudtrain.images.catalogue",
        "LocalImage": "cloudtrain.images.auto",
        "Registry": "cloudtrain.images.registry",
        "build_image": "cloudtrain.images.build",
        "ecr_image": "cloudtrain.images.auto",
        "ecr_images": "cloudtrain.images.registry",
        "ecr_registry": "cloudtrain.images.registry",
        "find_flavour": "cloudtrain.images.catalogue",
        "find_local": "cloudtrain.images.auto",
        "flavour_of": "cloudtrain.images.auto",
        "flavours": "cloudtrain.images.catalogue",
        "local_image": "cloudtrain.images.auto",
        "make_ecr_repository": "cloudtrain.images.registry",
        "push_image": "cloudtrain.images.registry",
    },
)

__all__ = [
    "AUTO",
    "BuildOptions",
    "EcrImage",
    "Flavour",
    "LocalImage",
    "Registry",
    "build_image",
    "ecr_image",
    "ecr_images",
    "ecr_registry",
    "find_flavour",
    "find_local",
    "flavour_of",
    "flavours",
    "local_image",
    "make_ecr_repository",
    "push_image",
]
