"""What platforms have in common whose jobs are supervised on this machine: `local` and `container`.

A job is a folder, and a process that carries it out, detached from the client.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.platform import SupervisedPlatform

__getattr__, __dir__ = lazy(__name__, {"SupervisedPlatform": "cloudtrain.platforms.supervised.platform"})

__all__ = ["SupervisedPlatform"]
