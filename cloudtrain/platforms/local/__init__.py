"""Jobs on this machine: one runtime process for each instance, detached from the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain._lazy import lazy

if TYPE_CHECKING:
    from cloudtrain.platforms.local.platform import LocalPlatform

__getattr__, __dir__ = lazy(__name__, {"LocalPlatform": "cloudtrain.platforms.local.platform"})

__all__ = ["LocalPlatform"]
