"""The dashboard: the jobs of this user in a browser on this machine. It needs the extra ``dashboard``."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.watch.dashboard.server import Address as Address, serve as serve

__getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.watch.dashboard.server": "Address serve"})
