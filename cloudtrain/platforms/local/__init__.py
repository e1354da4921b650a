"""Jobs on this machine: one runtime process for each instance, detached from the client."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.local.platform import LocalPlatform as LocalPlatform

__getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.platforms.local.platform": "LocalPlatform"})
