"""Jobs in containers on this machine, in Docker or Podman: one container for each instance."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.engine.engine import Engine, find_engine
    from cloudtrain.platforms.container.platform import ContainerPlatform

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ContainerPlatform": "cloudtrain.platforms.container.platform",
        "Engine": "cloudtrain.engine.engine",
        "find_engine": "cloudtrain.engine.engine",
    },
)

__all__ = ["ContainerPlatform", "Engine", "find_engine"]
