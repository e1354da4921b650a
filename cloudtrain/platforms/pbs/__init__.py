"""The platforms of PBS Professional and OpenPBS, of Torque, and of Cobalt."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.pbs.platform import (
        CobaltPlatform as CobaltPlatform,
        PbsPlatform as PbsPlatform,
        TorquePlatform as TorquePlatform,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.platforms.pbs.platform": "CobaltPlatform PbsPlatform TorquePlatform",
    },
)
