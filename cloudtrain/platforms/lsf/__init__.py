"""The platform of IBM Spectrum LSF."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.lsf.platform import LsfPlatform as LsfPlatform

__getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.platforms.lsf.platform": "LsfPlatform"})
