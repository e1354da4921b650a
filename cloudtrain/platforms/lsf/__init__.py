"""The platform of IBM Spectrum LSF."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.lsf.platform import LsfPlatform

__getattr__, __dir__ = lazy(__name__, {"LsfPlatform": "cloudtrain.platforms.lsf.platform"})

__all__ = ["LsfPlatform"]
