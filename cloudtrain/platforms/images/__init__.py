"""cloudtrain's own images: which there are, how one is built and pushed, and which one a job wants."""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain.spec.names import AUTO_IMAGE as AUTO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.images.auto import ecr_image, flavour_of, local_image
    from cloudtrain.platforms.images.build import BuildOptions, build_image
    from cloudtrain.platforms.images.catalogue import Flavour, find_flavour, flavours
    from cloudtrain.platforms.images.local import LocalImage, find_local
    from cloudtrain.platforms.images.registry import (
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
        "BuildOptions": "cloudtrain.platforms.images.build",
        "EcrImage": "cloudtrain.platforms.images.registry",
        "Flavour": "cloudtrain.platforms.images.catalogue",
        "LocalImage": "cloudtrain.platforms.images.local",
        "Registry": "cloudtrain.platforms.images.registry",
        "build_image": "cloudtrain.platforms.images.build",
        "ecr_image": "cloudtrain.platforms.images.auto",
        "ecr_images": "cloudtrain.platforms.images.registry",
        "ecr_registry": "cloudtrain.platforms.images.registry",
        "find_flavour": "cloudtrain.platforms.images.catalogue",
        "find_local": "cloudtrain.platforms.images.local",
        "flavour_of": "cloudtrain.platforms.images.auto",
        "flavours": "cloudtrain.platforms.images.catalogue",
        "local_image": "cloudtrain.platforms.images.auto",
        "make_ecr_repository": "cloudtrain.platforms.images.registry",
        "push_image": "cloudtrain.platforms.images.registry",
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
