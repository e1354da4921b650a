"""Container engines: find Docker or Podman, and use either through one client."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.engine.client import Bind, EngineClient, Spec, engine_errors
    from cloudtrain.engine.engine import Engine, find_engine, find_engines

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Bind": "cloudtrain.engine.client",
        "Engine": "cloudtrain.engine.engine",
        "EngineClient": "cloudtrain.engine.client",
        "Spec": "cloudtrain.engine.client",
        "engine_errors": "cloudtrain.engine.client",
        "find_engine": "cloudtrain.engine.engine",
        "find_engines": "cloudtrain.engine.engine",
    },
)

__all__ = [
    "Bind",
    "Engine",
    "EngineClient",
    "Spec",
    "engine_errors",
    "find_engine",
    "find_engines",
]
