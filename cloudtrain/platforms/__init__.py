"""Where a job runs. A platform renders a job into a request, submits it, and reports on the job."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.base import (
        AccountStorage as AccountStorage,
        Arrays as Arrays,
        Downloads as Downloads,
        Events as Events,
        Export as Export,
        HostOffer as HostOffer,
        HostState as HostState,
        JobDescription as JobDescription,
        JobState as JobState,
        JobWarnings as JobWarnings,
        Metrics as Metrics,
        Naming as Naming,
        Notifications as Notifications,
        Offers as Offers,
        Outlines as Outlines,
        PendingOutputs as PendingOutputs,
        Places as Places,
        Platform as Platform,
        Preemption as Preemption,
        Preflight as Preflight,
        Prices as Prices,
        Request as Request,
        Requests as Requests,
        Resolver as Resolver,
        Resubmission as Resubmission,
        Series as Series,
        Stacks as Stacks,
        States as States,
        Summaries as Summaries,
        Upkeep as Upkeep,
        WarmUp as WarmUp,
        Withdrawal as Withdrawal,
    )
    from cloudtrain.platforms.checks import (
        Check as Check,
        CheckStatus as CheckStatus,
        Finding as Finding,
        run_checks as run_checks,
    )
    from cloudtrain.platforms.preflight import job_checks as job_checks
    from cloudtrain.platforms.registry import get_platform as get_platform, platform_names as platform_names
    from cloudtrain.platforms.request_diff import Change as Change, changes as changes, fields as fields
    from cloudtrain.platforms.waiting import print_states as print_states

# lazy: the supervisor of a local job needs only its own module of this package
__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.platforms.base": (
            "AccountStorage Arrays Downloads Events Export HostOffer HostState JobDescription JobState JobWarnings "
            "Metrics Naming Notifications Offers Outlines PendingOutputs Places Platform Preemption Preflight Prices "
            "Request Requests Resolver Resubmission Series Stacks States Summaries Upkeep WarmUp Withdrawal"
        ),
        "cloudtrain.platforms.checks": "Check CheckStatus Finding run_checks",
        "cloudtrain.platforms.preflight": "job_checks",
        "cloudtrain.platforms.registry": "get_platform platform_names",
        "cloudtrain.platforms.request_diff": "Change changes fields",
        "cloudtrain.platforms.waiting": "print_states",
    },
)
