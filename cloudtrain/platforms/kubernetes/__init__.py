"""The Kubernetes platform: jobs as objects of a cluster's API."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.platform import KubernetesPlatform as KubernetesPlatform

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.platforms.kubernetes.platform": "KubernetesPlatform",
    },
)
