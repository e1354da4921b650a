"""Container engines: find Docker or Podman, and use either through one client."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.engine.client import (
        Bind as Bind,
        EngineClient as EngineClient,
        Spec as Spec,
        engine_errors as engine_errors,
    )
    from cloudtrain.engine.engine import (
        Engine as Engine,
        find_engine as find_engine,
        find_engines as find_engines,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.engine.client": "Bind EngineClient Spec engine_errors",
        "cloudtrain.engine.engine": "Engine find_engine find_engines",
    },
)
