"""Jobs on this machine: one runtime process for each instance, detached from the client."""

from cloudtrain.platforms.local.platform import LocalPlatform

__all__ = ["LocalPlatform"]
