"""Where a job runs. A platform renders a job into a request, submits it, and tells how it goes."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.base import Account, Events, JobDescription, Platform, Preemption, Request
    from cloudtrain.platforms.registry import get_platform, platform_names

# lazy: the supervisor of a local job imports its own module below this package, and nothing of the rest
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Account": "cloudtrain.platforms.base",
        "Events": "cloudtrain.platforms.base",
        "JobDescription": "cloudtrain.platforms.base",
        "Platform": "cloudtrain.platforms.base",
        "Preemption": "cloudtrain.platforms.base",
        "Request": "cloudtrain.platforms.base",
        "get_platform": "cloudtrain.platforms.registry",
        "platform_names": "cloudtrain.platforms.registry",
    },
)

__all__ = [
    "Account",
    "Events",
    "JobDescription",
    "Platform",
    "Preemption",
    "Request",
    "get_platform",
    "platform_names",
]
