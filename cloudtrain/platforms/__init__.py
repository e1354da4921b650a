"""Where a job runs. A platform renders a job into a request, submits it, and reports on the job."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cloudtrain.platforms.base import (
        AccountStorage,
        Arrays,
        Downloads,
        Events,
        Export,
        HostState,
        JobDescription,
        JobState,
        JobWarnings,
        Metrics,
        Naming,
        PendingOutputs,
        Platform,
        Preemption,
        Preflight,
        Prices,
        Request,
        Requests,
        Resolver,
        Resubmission,
        Series,
        States,
        Trends,
        Upkeep,
        WarmUp,
    )
    from cloudtrain.platforms.checks import Check, CheckStatus, Finding, run_checks
    from cloudtrain.platforms.preflight import job_checks
    from cloudtrain.platforms.registry import get_platform, platform_names
    from cloudtrain.platforms.request_diff import Change, changes
    from cloudtrain.platforms.states import print_states

# lazy: the supervisor of a local job needs only its own module of this package
_getattr, __dir__ = lazy(
    __name__,
    {
        "AccountStorage": "cloudtrain.platforms.base",
        "Arrays": "cloudtrain.platforms.base",
        "Change": "cloudtrain.platforms.request_diff",
        "Check": "cloudtrain.platforms.checks",
        "Downloads": "cloudtrain.platforms.base",
        "Events": "cloudtrain.platforms.base",
        "Export": "cloudtrain.platforms.base",
        "Finding": "cloudtrain.platforms.checks",
        "HostState": "cloudtrain.platforms.base",
        "JobDescription": "cloudtrain.platforms.base",
        "JobState": "cloudtrain.platforms.base",
        "JobWarnings": "cloudtrain.platforms.base",
        "Metrics": "cloudtrain.platforms.base",
        "Naming": "cloudtrain.platforms.base",
        "CheckStatus": "cloudtrain.platforms.checks",
        "Platform": "cloudtrain.platforms.base",
        "PendingOutputs": "cloudtrain.platforms.base",
        "Preemption": "cloudtrain.platforms.base",
        "Preflight": "cloudtrain.platforms.base",
        "Prices": "cloudtrain.platforms.base",
        "Request": "cloudtrain.platforms.base",
        "Requests": "cloudtrain.platforms.base",
        "Resolver": "cloudtrain.platforms.base",
        "Resubmission": "cloudtrain.platforms.base",
        "Series": "cloudtrain.platforms.base",
        "States": "cloudtrain.platforms.base",
        "Trends": "cloudtrain.platforms.base",
        "Upkeep": "cloudtrain.platforms.base",
        "WarmUp": "cloudtrain.platforms.base",
        "changes": "cloudtrain.platforms.request_diff",
        "get_platform": "cloudtrain.platforms.registry",
        "job_checks": "cloudtrain.platforms.preflight",
        "platform_names": "cloudtrain.platforms.registry",
        "run_checks": "cloudtrain.platforms.checks",
        "print_states": "cloudtrain.platforms.states",
    },
)

_RENAMED = {"Account": "AccountStorage", "Outcome": "CheckStatus", "telling": "print_states"}
"""Names that are deprecated for one version."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        message = f"cloudtrain.platforms.{name} is deprecated, use cloudtrain.platforms.{_RENAMED[name]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    return _getattr(name)


__all__ = [
    "AccountStorage",
    "Arrays",
    "Change",
    "Check",
    "CheckStatus",
    "Downloads",
    "Events",
    "Export",
    "Finding",
    "HostState",
    "JobDescription",
    "JobState",
    "JobWarnings",
    "Metrics",
    "Naming",
    "PendingOutputs",
    "Platform",
    "Preemption",
    "Preflight",
    "Prices",
    "Request",
    "Requests",
    "Resolver",
    "Resubmission",
    "Series",
    "States",
    "Trends",
    "Upkeep",
    "WarmUp",
    "changes",
    "get_platform",
    "job_checks",
    "platform_names",
    "print_states",
    "run_checks",
]
