"""Jobs on Amazon SageMaker: what its SDK's Estimator did, by the same requests."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.sagemaker.platform import SageMakerPlatform

__getattr__, __dir__ = lazy(__name__, {"SageMakerPlatform": "cloudtrain.platforms.sagemaker.platform"})

__all__ = ["SageMakerPlatform"]
