"""Where a job runs. A platform renders a job into a request, submits it, and tells how it goes."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.base import (
        Account,
        Events,
        JobDescription,
        JobState,
        Metrics,
        Platform,
        Preemption,
        Preflight,
        Prices,
        Request,
        Requests,
        Resolver,
        Series,
        States,
    )
    from cloudtrain.platforms.checks import Check, Finding, Outcome, run_checks
    from cloudtrain.platforms.preflight import job_checks
    from cloudtrain.platforms.registry import get_platform, platform_names
    from cloudtrain.platforms.request_diff import Change, changes
    from cloudtrain.platforms.states import telling

# lazy: the supervisor of a local job imports its own module below this package, and nothing of the rest
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Account": "cloudtrain.platforms.base",
        "Change": "cloudtrain.platforms.request_diff",
        "Check": "cloudtrain.platforms.checks",
        "Events": "cloudtrain.platforms.base",
        "Finding": "cloudtrain.platforms.checks",
        "JobDescription": "cloudtrain.platforms.base",
        "JobState": "cloudtrain.platforms.base",
        "Metrics": "cloudtrain.platforms.base",
        "Outcome": "cloudtrain.platforms.checks",
        "Platform": "cloudtrain.platforms.base",
        "Preemption": "cloudtrain.platforms.base",
        "Preflight": "cloudtrain.platforms.base",
        "Prices": "cloudtrain.platforms.base",
        "Request": "cloudtrain.platforms.base",
        "Requests": "cloudtrain.platforms.base",
        "Resolver": "cloudtrain.platforms.base",
        "Series": "cloudtrain.platforms.base",
        "States": "cloudtrain.platforms.base",
        "changes": "cloudtrain.platforms.request_diff",
        "get_platform": "cloudtrain.platforms.registry",
        "job_checks": "cloudtrain.platforms.preflight",
        "platform_names": "cloudtrain.platforms.registry",
        "run_checks": "cloudtrain.platforms.checks",
        "telling": "cloudtrain.platforms.states",
    },
)

__all__ = [
    "Account",
    "Change",
    "Check",
    "Events",
    "Finding",
    "JobDescription",
    "JobState",
    "Metrics",
    "Outcome",
    "Platform",
    "Preemption",
    "Preflight",
    "Prices",
    "Request",
    "Requests",
    "Resolver",
    "Series",
    "States",
    "changes",
    "get_platform",
    "job_checks",
    "platform_names",
    "run_checks",
    "telling",
]
