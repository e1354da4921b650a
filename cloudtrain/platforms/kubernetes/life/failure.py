"""Why a job failed, from the reports of its runtime, from the state of its pods, or from its last lines.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions, kubelet 1.29 to 1.37
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.ending import Ending
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.failure import LastLines, complete_report, report_from_reason
from cloudtrain.platforms.kubernetes.labels import ENDING, FAILED
from cloudtrain.platforms.kubernetes.life.objects import Owner, annotation, items, text, when
from cloudtrain.platforms.kubernetes.life.pods import Pod, leader_of, read_ending

RESUMES = "Submit the job again: it resumes from its last checkpoint."
SIGKILL_CODE = 128 + 9
SIGTERM_CODE = 128 + signal.SIGTERM
RESTART_CODE = 75
"""The exit code of a host that ended because another host did."""
_ECHOES = (RESTART_CODE, SIGTERM_CODE)

_LOW = re.compile(r"The node was low on resource: (?P<resource>[\w-]+)")
_FULL = re.compile(r"ephemeral(?:.local)?.storage|EmptyDir volume", re.IGNORECASE)
_ADMISSION = re.compile(
    r"OutOf\w+|Outof\S+|UnexpectedAdmissionError|NodeAffinity|TopologyAffinityError|NodePorts"
)
_NO_SHELL = re.compile(
    r'exec: "(?P<program>[^"]+)": (?:stat \S+: )?(?:no such file|executable file not found)'
)
_GPU = re.compile(r"nvidia-container-cli|libnvidia|nvidia\.com/gpu|unresolvable CDI devices", re.IGNORECASE)

Cause = tuple[FailureClass, str, str, int]


def cause_of(pod: Pod) -> FailureReport | None:
    """Why Kubernetes ended a pod, or could not start it; None if its program exited by itself."""
    for kind, message, hint, code in _causes(pod):
        ended = pod.end.ended if pod.end else None
        return FailureReport(kind, message, hint, host=pod.host, exit_code=code, time=ended)
    return None


def _causes(pod: Pod) -> Iterator[Cause]:
    """All causes that match; the first one is used."""
    end, gone, name = pod.end, pod.why_gone, f"pod {pod.name}"
    status = text(pod.found, "status", "message")
    if gone == "Evicted":
        yield _evicted(pod, status)
    if end and end.reason == "OOMKilled":
        containers = items(pod.found, "spec", "containers")
        own = next((one for one in containers if one.get("name") == pod.container), {})
        limit = text(own, "resources", "limits", "memory")
        yield (
            FailureClass.OUT_OF_MEMORY,
            f"{name} was killed because it used more memory than its limit"
            + (f" of {limit}" if limit else ""),
            "Increase platform_options.memory, or use a smaller batch or fewer workers of data loaders. What is in "
            "/dev/shm counts, too.",
            SIGKILL_CODE,
        )
    reason, reported = text(pod.disruption, "reason"), text(pod.disruption, "message") or status
    words = f": {reported}" if reported else ""
    on = f" on node {pod.node}" if pod.node else ""
    if reason == "PreemptionByScheduler" or gone == "Preempting":
        hint = f"{RESUMES} platform_options.priority_class sets its own priority."
        message = f"{name}{on} gave way to a pod of a higher priority{words}"
        yield FailureClass.PREEMPTED, message, hint, SIGTERM_CODE
    if reason == "EvictionByEvictionAPI":
        message = f"{name}{on} was evicted, as for the maintenance of a node{words}"
        yield FailureClass.PREEMPTED, message, RESUMES, SIGTERM_CODE
    is_shutdown = "shutdown" in reported.lower() or gone in ("Terminated", "Shutdown", "NodeShutdown")
    if is_shutdown and (reason in ("TerminationByKubelet", "") or gone):
        yield FailureClass.PREEMPTED, f"the node of {name}{on} shut down{words}", RESUMES, SIGTERM_CODE
    is_lost = reason in ("DeletionByTaintManager", "DeletionByPodGC") or gone == "NodeLost"
    if is_lost or pod.phase == "Unknown":
        where = f" ({pod.node})" if pod.node else ""
        yield FailureClass.HOST_LOST, f"the node of {name} was lost{where}{words}", RESUMES, SIGKILL_CODE
    if end and end.reason == "ContainerStatusUnknown":
        message = f"the node of {name}{on} lost its container: {end.message}"
        yield FailureClass.HOST_LOST, message, RESUMES, SIGKILL_CODE
    if gone == "DeadlineExceeded":
        hint = "The limit is its activeDeadlineSeconds."
        yield FailureClass.TIME_LIMIT, f"{name} reached its deadline", hint, SIGTERM_CODE
    if _ADMISSION.fullmatch(gone):
        yield (
            FailureClass.GPU_SETUP if _GPU.search(status) else FailureClass.PLATFORM,
            f"node {pod.node} did not accept {name}: {status or gone}",
            "Submit the job again. If it repeats, the devices of that node are broken: its administrators should know.",
            1,
        )
    if end and end.reason in ("StartError", "ContainerCannotRun", "CreateContainerError"):
        if program := _NO_SHELL.search(end.message):
            yield (
                FailureClass.PLATFORM,
                f"image {pod.image} has no {program['program']}",
                "An image needs /bin/sh and Python 3.9 or newer. Use one that has them, such as python:3.12-slim.",
                end.code or 127,
            )
        kind = FailureClass.GPU_SETUP if _GPU.search(end.message) else FailureClass.PLATFORM
        yield kind, f"{name} could not start: {end.message}", "", end.code or 128


def _evicted(pod: Pod, message: str) -> Cause:
    low = _LOW.search(message)
    where = f"pod {pod.name} was evicted" + (f" from node {pod.node}" if pod.node else "")
    sets = "set platform_options.{} to what the job needs, so that it gets a node that has it."
    if _FULL.search(message):
        hint = "Increase platform_options.disk, and write less to the disk of the node."
        if low:
            hint = f"The disk of the node is full: {sets.format('disk')}"
        return FailureClass.DISK_FULL, f"{where}: {message}", hint, SIGKILL_CODE
    if low and low["resource"] == "memory":
        hint = f"The memory of the node is full: {sets.format('memory')}"
        return FailureClass.OUT_OF_MEMORY, f"{where}: {message}", hint, SIGKILL_CODE
    why = message or "Kubernetes gives no reason"
    return FailureClass.PLATFORM, f"{where}: {why}", RESUMES, SIGKILL_CODE


def leaders_ending(owner: Owner, pods: Sequence[Pod]) -> Ending | None:
    """The leader's report of how the job ended: from its pod or, if that was deleted, from the owner."""
    leader = leader_of(pods)
    if leader and leader.end and leader.end.ending:
        return leader.end.ending
    return read_ending(annotation(owner.found, ENDING))


def given_up(owner: Owner) -> FailureReport | None:
    """The report of a job that cloudtrain has given up, because it could not start."""
    with contextlib.suppress(ValueError):
        return FailureReport.from_json(annotation(owner.found, FAILED))
    return None


def find_failure(owner: Owner, pods: Sequence[Pod], last_lines: LastLines | None = None) -> FailureReport:
    """Why a job failed, from its current pods. Without ``last_lines``, the report has no output from the script."""
    if report := given_up(owner):
        return report
    ending = leaders_ending(owner, pods)
    if ending and ending.failure:
        return _refined(ending.failure, pods)
    report = _from_pods(pods, last_lines) or _from_owner(owner)
    return replace(report, time=report.time or owner.ended)


def is_explained(pods: Sequence[Pod]) -> bool:
    """Whether a pod failed by itself, or Kubernetes reports a cause for it: other pods end only as a consequence.

    A single follower that fails or is killed ends the job, and Kubernetes then ends the leader.
    """
    return any(cause_of(pod) or (pod.end and pod.end.code not in (0, SIGKILL_CODE, *_ECHOES)) for pod in pods)


def _refined(report: FailureReport, pods: Sequence[Pod]) -> FailureReport:
    """A report that a host was lost, replaced by the cause that Kubernetes reports for its pod."""
    if report.failure_class not in (FailureClass.HOST_LOST, FailureClass.PREEMPTED) or not report.host:
        return report
    pod = next((pod for pod in pods if pod.host == report.host), None)
    cause = cause_of(pod) if pod else None
    return replace(cause, time=report.time, phase=report.phase) if cause else report


def _from_pods(pods: Sequence[Pod], last_lines: LastLines | None) -> FailureReport | None:
    """The report of the pod that ended first. A pod with a cause from Kubernetes takes precedence over the others."""
    ended = [pod for pod in pods if pod.phase in ("Failed", "Unknown") or (pod.end and pod.end.code)]
    ended.sort(key=_order)
    if cause := next((cause for pod in ended if (cause := cause_of(pod))), None):
        return cause
    endings = [pod.end.ending for pod in ended if pod.end and pod.end.ending]
    reports = [ending.failure for ending in endings if ending.failure]
    if reports:
        return min(reports, key=lambda report: report.failure_class == FailureClass.HOST_LOST)
    return _from_exit(ended[0], last_lines) if ended else None


def _order(pod: Pod) -> tuple[bool, float, bool]:
    end = pod.end
    ended = end.ended if end and end.ended else float("inf")
    return bool(end and end.code in _ECHOES), ended, not pod.is_leader


def _from_exit(pod: Pod, last_lines: LastLines | None) -> FailureReport:
    """The report of a container with only a known exit code, its message and its output."""
    end = pod.end
    if end is None:
        reported = text(pod.found, "status", "message") or pod.why_gone or "Kubernetes gives no reason"
        return FailureReport(
            FailureClass.PLATFORM, f"pod {pod.name} failed: {reported}", RESUMES, host=pod.host
        )
    report = report_from_reason(end.message, end.code)
    if last_lines is not None and not end.message:
        with contextlib.suppress(PlatformError):
            report = complete_report(report, last_lines(pod.host))
    return replace(report, host=pod.host, time=end.ended)


def _from_owner(owner: Owner) -> FailureReport:
    """The report of a job without pods, from its controller."""
    failed = owner.failed
    reason = text(failed, "reason")
    reported = ": ".join(filter(None, [reason, text(failed, "message")])) or "its controller gives no reason"
    hint = RESUMES
    if reason == "TrainingRuntimeNotSupported":
        hint = "Choose another training runtime: kubectl get clustertrainingruntimes"
    elif reason == "PodFailurePolicy" or reason.startswith("BackoffLimitExceeded"):
        hint = "Its pods are gone, with their output. The events of the job may show more: kubectl get events"
    return FailureReport(FailureClass.PLATFORM, reported, hint, time=when(failed, "lastTransitionTime"))


def time_limit(owner: Owner, why: str = "") -> FailureReport:
    """The report of a job that Kubernetes ended at its deadline. ``why``: the reason if it had not started by then."""
    seconds = f" of {owner.deadline} s" if owner.deadline else ""
    message = f"Kubernetes ended the job at its time limit{seconds}"
    hint = f"The limit is the activeDeadlineSeconds of its object. {RESUMES}"
    if why:
        message = f"the job reached its time limit{seconds} before it could start: {why}"
        hint = "The limit is the activeDeadlineSeconds of its object, in which the time that it waits counts, too."
    return FailureReport(FailureClass.TIME_LIMIT, message, hint, exit_code=SIGTERM_CODE, time=owner.ended)


def deleted(owner: Owner, now: float, *, seen: bool) -> FailureReport:
    """The report of a job whose main object was deleted. Unless the deletion was ``seen``, it may have ended before."""
    when_deleted = "while the job lived" if seen else "while no one watched: how the job ended is unknown"
    hint = f"Someone deleted it, with kubectl for example; then all its pods end. {RESUMES}"
    if not seen:
        hint = f"Someone deleted it, or platform_options.ttl after its end was over. {RESUMES}"
    return FailureReport(
        FailureClass.KILLED,
        f"its {owner.kind} was deleted in Kubernetes {when_deleted}",
        hint,
        exit_code=SIGTERM_CODE,
        time=when(owner.found, "metadata", "deletionTimestamp") or now,
    )
