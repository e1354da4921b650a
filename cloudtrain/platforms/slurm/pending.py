"""Why a job waits in Slurm's queue: each reason as a sentence, with what to do about it.

https://slurm.schedmd.com/job_reason_codes.html, of the versions 22.05 to 26.05
"""

from __future__ import annotations

import re
import time
from datetime import datetime

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import JobStatus
from cloudtrain.platforms.slurm.squeue import QueueRow

NOTHING = "Nothing to do."
ADMINS = "Ask the administrators of the cluster"


@dataclass(frozen=True)
class Why:
    """Why a job is pending."""

    sentence: str
    advice: str = NOTHING

    def __str__(self) -> str:
        return f"{self.sentence}. {self.advice}".removesuffix(f" {NOTHING}")


_STOP = "Stop the job, and submit it again with less"

_REASONS: dict[str, Why] = {
    "": Why("Slurm has not considered it yet"),
    "None": Why("Slurm has not considered it yet"),
    "Priority": Why(
        "jobs of a higher priority wait before it", "A shorter max_run or fewer nodes may fit into a gap."
    ),
    "Resources": Why("the nodes, CPUs or GPUs that it asks for are in use"),
    "Dependency": Why("it waits for another job to end"),
    "DependencyNeverSatisfied": Why(
        "the job that it depends on did not end as asked, so it never starts",
        "Stop it, and submit it again without that dependency.",
    ),
    "BeginTime": Why(
        "its earliest start has not come yet",
        "A job that was put back into the queue waits about two minutes; platform_options.begin sets other times.",
    ),
    "JobHeldUser": Why("it is held by its user", "Let it start with: scontrol release {number}"),
    "JobHeldAdmin": Why("an administrator holds it", f"{ADMINS} why, and name job {{number}}."),
    "JobHoldMaxRequeue": Why(
        "it was put back into the queue too often, and is held",
        "Look at its log. Then: scontrol release {number}",
    ),
    "job requeued in held state": Why(
        "someone put it back into the queue and holds it", "Let it start with: scontrol release {number}"
    ),
    "launch failed requeued held": Why(
        "Slurm could not start it on a node, and holds it",
        f"{ADMINS} about job {{number}}; leave the node out with platform_options.exclude, and submit it again.",
    ),
    "PartitionNodeLimit": Why(
        "it asks for more nodes than its partition has or allows for a job, or the nodes are down",
        "Compare instance_count with: sinfo -p {partition}",
    ),
    "PartitionTimeLimit": Why(
        "its time limit is longer than its partition allows",
        "Stop it, and submit it again with a shorter max_run or to another partition: sinfo -o '%P %l'",
    ),
    "PartitionConfig": Why(
        "its partition has no nodes like those it asks for",
        "Compare instance_count, CPUs, memory and GPUs with: scontrol show partition {partition}",
    ),
    "PartitionDown": Why("its partition starts no jobs now", "It starts when the partition is up again."),
    "PartitionInactive": Why(
        "its partition is closed", "Choose another with platform_options.partition: sinfo"
    ),
    "ReqNodeNotAvail": Why(
        "nodes that it needs are down, drained or reserved{nodes}",
        "Often this is a maintenance: a shorter max_run may end before it (scontrol show reservation). A job that "
        "names nodes waits for exactly those.",
    ),
    "NodeDown": Why("a node that it needs is down{nodes}"),
    "Reservation": Why("its reservation has not begun", "See when it begins: scontrol show reservation"),
    "ReservationDeleted": Why(
        "its reservation was deleted", "Submit it again without platform_options.reservation."
    ),
    "ReservationInvalid": Why(
        "its reservation is not valid for it", "Submit it again with another reservation."
    ),
    "Licenses": Why("all licenses that it asks for are in use"),
    "BadConstraints": Why(
        "no node satisfies what it asks for",
        "Compare platform_options (constraint, gres, mem) with: scontrol show nodes",
    ),
    "Constraints": Why(
        "no node satisfies what it asks for",
        "Compare platform_options (constraint, gres, mem) with: scontrol show nodes",
    ),
    "Prolog": Why("its nodes are being prepared"),
    "Cleaning": Why("it was put back into the queue, and its nodes are cleaned up"),
    "InvalidAccount": Why(
        "its account is not valid", "Submit it again with another platform_options.account."
    ),
    "AccountNotAllowed": Why(
        "its account may not use this partition",
        "Submit it again with another account or partition: sacctmgr show associations user=$USER",
    ),
    "InvalidQOS": Why("its QOS is not valid", "Submit it again with another platform_options.qos."),
    "QOSNotAllowed": Why(
        "its QOS may not be used with this partition or account",
        "Submit it again with another platform_options.qos.",
    ),
    "QOSUsageThreshold": Why(
        "the usage of its QOS is over the threshold", "It starts when the usage has decayed."
    ),
    "QOSJobLimit": Why("its QOS runs as many jobs as it may", "It starts when one of them ends."),
    "QOSResourceLimit": Why("its QOS uses as much as it may", "It starts when jobs of the QOS end."),
    "QOSTimeLimit": Why("its QOS has used up its time", f"{ADMINS} for more, or use another QOS."),
    "AssociationJobLimit": Why(
        "your account runs as many jobs as it may", "It starts when one of them ends."
    ),
    "AssociationResourceLimit": Why("your account uses as much as it may", "It starts when jobs of it end."),
    "AssociationTimeLimit": Why(
        "your account has used up its time", f"{ADMINS} for more, or use another account."
    ),
    "AccountingPolicy": Why(
        "a limit of your account or QOS is reached", "See them: sacctmgr show associations user=$USER"
    ),
    "JobArrayTaskLimit": Why("as many jobs of its array run as may run at the same time"),
    "BurstBufferResources": Why("the burst buffer that it asks for is in use"),
    "BurstBufferStageIn": Why("its burst buffer is being filled"),
    "BurstBufferOperation": Why("its burst buffer failed", f"{ADMINS} about job {{number}}."),
    "PowerNotAvail": Why("there is not enough power for it now"),
    "PowerReserved": Why("the power that it needs is reserved"),
    "MaxMemPerLimit": Why(
        "it asks for more memory than its partition allows", "Submit it again with less platform_options.mem."
    ),
    "DeadLine": Why(
        "it cannot end before its deadline", "Submit it again with a later platform_options.deadline."
    ),
    "FrontEndDown": Why("the front end of its nodes is down"),
    "SchedDefer": Why("Slurm schedules jobs later, not when they are submitted"),
    "SystemFailure": Why("a part of Slurm failed", f"{ADMINS} about job {{number}}."),
    "FedJobLock": Why("the clusters of its federation decide which of them starts it"),
}

_SCOPES = {"PerJob": "a job", "PerNode": "a node", "PerUser": "a user", "PerAccount": "an account"}
_LIMIT = re.compile(
    r"(?P<who>Assoc|QOS|)(?P<kind>Grp|Max|Min)(?P<what>[A-Za-z]*?)(?P<minutes>(?:Run)?Min(?:ute)?s)?"
    r"(?P<scope>PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)
_RESOURCES = {
    "bb": "burst buffer",
    "billing": "billing units",
    "cpu": "CPUs",
    "energy": "energy",
    "gres": "GPUs or other generic resources",
    "job": "running jobs",
    "lic": "licenses",
    "mem": "memory",
    "node": "nodes",
    "sub": "submitted jobs",
    "wall": "time",
}


def why_pending(reason: str, *, number: str = "", partition: str = "") -> Why:
    """The sentence for one of Slurm's reasons, with what to do about it.

    Args:
        reason: as ``squeue`` prints it, with what Slurm may add: ``ReqNodeNotAvail, UnavailableNodes:n[1-3]``.
            ``scontrol`` prints underscores for its spaces.
        number: Slurm's number of the job, for commands.
    """
    given = reason.strip("()")
    word, _, more = given.partition(",")
    found = _REASONS.get(word.replace("_", " ").strip()) or _limit(word.strip())
    if found is None:
        return Why(f"Slurm says {given}")
    nodes = more.partition(":")[2].strip()
    facts = {
        "number": number or "NUMBER",
        "partition": partition or "PARTITION",
        "nodes": f": {nodes}" if nodes else "",
    }
    return Why(found.sentence.format(**facts), found.advice.format(**facts))


def _limit(word: str) -> Why | None:
    """A limit of an account or a QOS. Its name contains whose limit it is, the resource, and the scope."""
    match = _LIMIT.fullmatch(word)
    if not match or not match["what"]:
        return None
    whose = {"Assoc": "your account", "QOS": "its QOS", "": "its account"}[match["who"]]
    name = match["what"].lower()
    what = next((text for start, text in _RESOURCES.items() if name.startswith(start)), "resources")
    if match["minutes"]:
        what = f"minutes of {what}"
    see = "sacctmgr show associations user=$USER" if match["who"] == "Assoc" else "sacctmgr show qos"
    if match["kind"] == "Min":
        return Why(
            f"it asks for less than {whose} requires ({what})",
            f"Stop it, and submit it again with more. See the limits: {see}",
        )
    scope = match["scope"]
    each = _SCOPES.get(scope or "", "all its jobs together")
    if scope in ("PerJob", "PerNode") or (match["kind"] == "Max" and name.startswith("wall")):
        return Why(
            f"it asks for more than {whose} allows for {each if scope else 'a job'} ({what})",
            f"{_STOP}. See the limits: {see}",
        )
    if match["minutes"] and match["kind"] == "Grp" and not match["minutes"].startswith("Run"):
        return Why(f"{whose} has used up its {what}", f"{ADMINS} for more. See the limits: {see}")
    return Why(
        f"{whose} has reached the limit for {each} ({what})",
        f"It starts when other jobs end. See the limits: {see}",
    )


NEWS_SECONDS = 300.0
"""How far an expected start has to move to be announced again: it changes with every pass of the scheduler."""


def reason_of(row: QueueRow, status: JobStatus) -> str:
    """The sentence why a job in Slurm's queue does not run; empty if it does."""
    if row.is_waiting:
        why = why_pending(row.reason, number=row.number, partition=row.partition)
        return f"back in the queue: {why}" if status != JobStatus.PENDING else str(why)
    if row.state == "SUSPENDED":
        return "suspended by Slurm: another job uses its nodes now"
    if row.state == "STOPPED":
        return "stopped by a signal, with its nodes kept"
    if row.state in ("CONFIGURING", "POWER_UP_NODE"):
        return f"its nodes are booting: {row.nodes}"
    if row.state == "COMPLETING":
        return "it is ending"
    return f"it starts on {row.nodes}" if status == JobStatus.PENDING and row.nodes else ""


def has_moved(announced: float | None, start: float | None) -> bool:
    if announced is None or start is None:
        return announced is not start
    left = max(announced - time.time(), 0.0)
    return abs(start - announced) > max(NEWS_SECONDS, left / 10)


def moment(seconds: float) -> str:
    """``at 14:30``, with the date if that is another day, and the time until then: ``(in 2.5 h)``."""
    then, now = datetime.fromtimestamp(seconds), datetime.now()
    at = f"{then:%H:%M}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"
    return f"at {at} (in {_span(seconds - time.time())})"


def _span(seconds: float) -> str:
    """A rough duration: ``40 min``, ``2.5 h``, ``3 days``."""
    hours = seconds / 3600
    if hours < 1.5:
        return f"{seconds / 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
