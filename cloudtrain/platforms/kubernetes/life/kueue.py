"""Why a job waits in a queue of Kueue: the conditions of its Workload, as sentences.

The texts are those of Kueue 0.6 to 0.18 (``kueue.x-k8s.io``, v1beta1 and v1beta2).
"""

from __future__ import annotations

import re

from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    condition,
    holds,
    items,
    name_of,
    part,
    text,
    when,
)
from cloudtrain.platforms.kubernetes.life.why import Why
from cloudtrain.platforms.kubernetes.quantities import parse_quantity, show_quantity

_POD_SET = re.compile(r"couldn't assign flavors to pod set (?P<set>\S+): ")
_UNUSED = re.compile(
    r"insufficient unused quota (?:in cohort )?for (?P<resource>\S+) in flavor (?P<flavor>\S+), "
    r"(?P<more>\S+) more needed"
)
_MAXIMUM = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), (?:.*?)"
    r"(?:maximum capacity \((?P<limits>[^)]*)\))"
)
_PREEMPTING = re.compile(r"Pending the preemption of (?P<count>\d+) workload")
_TIME = "MaximumExecutionTime"

TIME_LIMIT_WORDS = "maximum execution time"


def queue_of(workload: Object) -> str:
    return text(workload, "spec", "queueName")


def is_admitted(workload: Object) -> bool:
    return holds(workload, "Admitted") is not None


def is_active(workload: Object) -> bool:
    """Whether Kueue may start the job: it is not deactivated."""
    return part(workload, "spec", "active") is not False


def why_queued(workload: Object | None, queue: str) -> Why:
    """Why Kueue has not started a job.

    Args:
        workload: Kueue's object for the job; None if there is none yet.
        queue: the name in the job's label.
    """
    if workload is None:
        return Why(
            f"Kueue has not taken it into the queue {queue} yet",
            "If this lasts, Kueue does not run, or does not manage jobs of this kind: kubectl get localqueues",
        )
    if not is_active(workload):
        return deactivated(workload)
    reserved = condition(workload, "QuotaReserved")
    if reserved is not None and reserved.get("status") == "True":
        return _checks(workload)
    evicted = holds(workload, "Evicted")
    said = text(reserved, "message")
    if reserved is None:
        return evicted_why(workload) if evicted else Why("Kueue has not considered it yet")
    why = _no_quota(said, text(reserved, "reason"), queue_of(workload) or queue)
    since = when(reserved, "lastTransitionTime")
    if evicted and "couldn't assign" not in said:
        return evicted_why(workload)
    return Why(why.sentence, why.advice, why.patience, since)


def _shown(given: str, resource: str) -> str:
    value = parse_quantity(given)
    return given if value is None else show_quantity(value, resource)


def _no_quota(said: str, reason: str, queue: str) -> Why:
    lacking = [
        f"{_shown(one['more'], one['resource'])} {one['resource']} of flavor {one['flavor']}"
        for one in _UNUSED.finditer(said)
    ]
    preempting = _PREEMPTING.search(said)
    if preempting:
        count = int(preempting["count"])
        return Why(
            f"Kueue preempts {count} other job{'s' * (count > 1)} for it", "It starts when they have ended."
        )
    if lacking:
        return Why(
            f"Kueue has too little free quota in the queue {queue}: {', '.join(lacking)} more needed",
            "It starts when other jobs of the queue end.",
        )
    beyond = _MAXIMUM.search(said)
    if beyond or reason == "ExceedsMaxQuota":
        what = f" of {beyond['resource']} in flavor {beyond['flavor']} ({beyond['limits']})" if beyond else ""
        return Why(
            f"it asks for more than the queue {queue} of Kueue ever has{what}",
            "Ask for fewer or smaller hosts, or use another queue.",
        )
    words = _POD_SET.sub("", said).strip().rstrip(".")
    if "LocalQueue" in words and ("doesn't exist" in words or "missing" in words):
        return Why(
            f"the queue {queue} of Kueue does not exist in its namespace",
            "See the queues: kubectl get localqueues",
        )
    return Why(f"Kueue says: {words}" if words else "Kueue has not considered it yet")


def _checks(workload: Object) -> Why:
    """Why a job with quota is not admitted: checks of the cluster, such as nodes that are being provisioned."""
    waiting = [one for one in items(workload, "status", "admissionChecks") if one.get("state") != "Ready"]
    if not waiting:
        return Why("Kueue has reserved quota for it, and starts it")
    named = ", ".join(
        f"{text(one, 'name')}" + (f" ({text(one, 'message')})" if text(one, "message") else "")
        for one in waiting
    )
    return Why(f"Kueue has reserved quota for it, and waits for a check: {named}")


def evicted_why(workload: Object) -> Why:
    """Why Kueue took back the quota of a job that had started; it is in the queue again."""
    evicted, preempted = holds(workload, "Evicted"), holds(workload, "Preempted")
    reason = text(evicted, "reason")
    since = when(evicted, "lastTransitionTime")
    again = "It is in the queue again, and resumes from its last checkpoint."
    if reason == "Preempted" or preempted:
        cause = {
            "InClusterQueue": "of a higher priority in the same queue",
            "InCohortReclamation": "of the queue that had lent it the quota",
            "InCohortFairSharing": "of a queue that uses less than its share",
            "InCohortReclaimWhileBorrowing": "of a higher priority in another queue",
        }.get(text(preempted, "reason"), "of a higher priority")
        return Why(f"Kueue gave its quota to a job {cause}", again, since=since)
    if reason == "PodsReadyTimeout":
        return Why(
            "Kueue took back its quota, because its pods were not ready in time",
            "See why they were not with: kubectl get events",
            since=since,
        )
    if reason in ("ClusterQueueStopped", "LocalQueueStopped"):
        return Why(
            "its queue of Kueue was stopped", "It starts when an administrator resumes it.", since=since
        )
    if reason == "NodeFailures":
        return Why("Kueue took back its quota, because its nodes failed", again, since=since)
    said = text(evicted, "message").rstrip(".")
    return Why(f"Kueue took back its quota ({said or reason})", again, since=since)


def deactivated(workload: Object) -> Why:
    """Why a job will not start again unless someone activates it."""
    evicted = holds(workload, "Evicted")
    said = text(evicted, "message")
    why = said.partition(" due to ")[2].rstrip(".")
    name = name_of(workload) or "WORKLOAD"
    again = (
        f'Start it again with: kubectl patch workload {name} --type merge -p \'{{"spec": {{"active": true}}}}\'. '
        "It resumes from its last checkpoint."
    )
    if reached_time_limit(workload):
        return Why(f"Kueue ended it at its time limit ({why or said})", again)
    return Why("Kueue has deactivated it" + (f": {why}" if why else ""), again)


def reached_time_limit(workload: Object) -> bool:
    evicted = holds(workload, "Evicted")
    return _TIME in text(evicted, "reason") or TIME_LIMIT_WORDS in text(evicted, "message")
