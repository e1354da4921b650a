"""The Slurm platform: jobs in the queue of a cluster."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.slurm.platform import SlurmPlatform as SlurmPlatform

__getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.platforms.slurm.platform": "SlurmPlatform"})
