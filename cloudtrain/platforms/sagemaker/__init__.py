"""Jobs on Amazon SageMaker, with the same requests as its SDK."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.sagemaker.platform import SageMakerPlatform as SageMakerPlatform

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.platforms.sagemaker.platform": "SageMakerPlatform",
    },
)
