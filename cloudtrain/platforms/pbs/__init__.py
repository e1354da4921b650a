"""The platforms of PBS Professional and OpenPBS, of Torque, and of Cobalt."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.pbs.platform import CobaltPlatform, PbsPlatform, TorquePlatform

__getattr__, __dir__ = lazy(
    __name__,
    dict.fromkeys(("CobaltPlatform", "PbsPlatform", "TorquePlatform"), "cloudtrain.platforms.pbs.platform"),
)

__all__ = ["CobaltPlatform", "PbsPlatform", "TorquePlatform"]
