"""Jobs on a list of hosts: one runtime on each, started through ssh, or as a process if the host is this machine."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.hosts.platform import HostsPlatform as HostsPlatform

__getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.platforms.hosts.platform": "HostsPlatform"})
