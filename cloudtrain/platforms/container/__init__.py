"""Jobs in containers on this machine, in Docker or Podman: one container for each instance."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.engine.engine import Engine as Engine, find_engine as find_engine
    from cloudtrain.platforms.container.platform import ContainerPlatform as ContainerPlatform

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.engine.engine": "Engine find_engine",
        "cloudtrain.platforms.container.platform": "ContainerPlatform",
    },
)
