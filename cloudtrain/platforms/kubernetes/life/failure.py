"""Why a job failed: from what its runtime left, from what Kubernetes says about its pods, or from its last lines."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.ending import Ending
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.failure import LastLines, complete_report, report_from_reason
from cloudtrain.platforms.kubernetes.labels import ENDING, FAILED
from cloudtrain.platforms.kubernetes.life.causes import RESUMES, SIGKILL_CODE, SIGTERM_CODE, cause_of
from cloudtrain.platforms.kubernetes.life.objects import Object, annotation, text, when
from cloudtrain.platforms.kubernetes.life.owner import Owner
from cloudtrain.platforms.kubernetes.life.pods import Pod, leader_of, read_ending

RESTART_CODE = 75
"""The exit code of a host that ended because another one did."""
_ECHOES = (RESTART_CODE, SIGTERM_CODE)

_UNSUPPORTED = "TrainingRuntimeNotSupported"


def leaders_ending(owner: Owner, pods: Sequence[Pod]) -> Ending | None:
    """How the job ended, as its leader saw it: from its pod, or, if that is gone, as kept with the owner."""
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
    """Why a job failed.

    Args:
        pods: the current pods.
        last_lines: returns the last lines of one host, or of every host; None to leave them out.
    """
    report = given_up(owner)
    if report:
        return report
    ending = leaders_ending(owner, pods)
    if ending and ending.failure:
        return _refined(ending.failure, pods)
    report = _from_pods(pods, last_lines) or _from_owner(owner)
    return replace(report, time=report.time or owner.ended)


def is_explained(pods: Sequence[Pod]) -> bool:
    """Whether a pod ended by itself, or through Kubernetes: not because it was asked to, or another one ended.

    A follower that fails alone, or is killed, ends the job, and Kubernetes then asks the leader to end.
    """
    return any(cause_of(pod) or (pod.end and pod.end.code not in (0, SIGKILL_CODE, *_ECHOES)) for pod in pods)


def _refined(report: FailureReport, pods: Sequence[Pod]) -> FailureReport:
    """A report that a host was lost, with what Kubernetes says about its pod."""
    if report.failure_class not in (FailureClass.HOST_LOST, FailureClass.PREEMPTED) or not report.host:
        return report
    pod = next((pod for pod in pods if pod.host == report.host), None)
    cause = cause_of(pod) if pod else None
    return replace(cause, time=report.time, phase=report.phase) if cause else report


def _from_pods(pods: Sequence[Pod], last_lines: LastLines | None) -> FailureReport | None:
    """The report of the pod that ended first; that of one that was killed comes before those of its partners."""
    ended = [pod for pod in pods if pod.phase in ("Failed", "Unknown") or (pod.end and pod.end.code)]
    known = [(pod, cause) for pod in ended if (cause := cause_of(pod))]
    if known:
        return min(known, key=lambda one: _order(one[0]))[1]
    reports = [
        (pod, pod.end.ending.failure)
        for pod in ended
        if pod.end and pod.end.ending and pod.end.ending.failure
    ]
    if reports:
        return min(reports, key=lambda one: (one[1].failure_class == FailureClass.HOST_LOST, _order(one[0])))[
            1
        ]
    first = min(ended, key=_order, default=None)
    return _from_exit(first, last_lines) if first else None


def _order(pod: Pod) -> tuple[bool, float, bool]:
    end = pod.end
    return (
        bool(end and end.code in _ECHOES),
        end.ended if end and end.ended else float("inf"),
        not pod.is_leader,
    )


def _from_exit(pod: Pod, last_lines: LastLines | None) -> FailureReport:
    """The report of a container of which only the exit code is known, and what it printed."""
    end = pod.end
    if end is None:
        said = text(pod.found, "status", "message") or pod.why_gone or "Kubernetes does not say why"
        return FailureReport(FailureClass.PLATFORM, f"pod {pod.name} failed: {said}", RESUMES, host=pod.host)
    report = report_from_reason(end.message, end.code)
    if last_lines is not None and not end.message:
        with contextlib.suppress(PlatformError):
            report = complete_report(report, last_lines(pod.host))
    return replace(report, host=pod.host, time=end.ended)


def _from_owner(owner: Owner) -> FailureReport:
    """The report of a job without pods: what its controller says."""
    failed = owner.failed
    reason, message = text(failed, "reason"), text(failed, "message")
    said = (
        f"{reason}: {message}"
        if reason and message
        else message or reason or "its controller does not say why"
    )
    hint = RESUMES
    if reason == _UNSUPPORTED:
        hint = "Choose another training runtime: kubectl get clustertrainingruntimes"
    elif reason == "PodFailurePolicy" or reason.startswith("BackoffLimitExceeded"):
        hint = "Its pods are gone, with their output. The events of the job may say more: kubectl get events"
    return FailureReport(FailureClass.PLATFORM, said, hint, time=when(failed, "lastTransitionTime"))


def time_limit(owner: Owner, why: str = "") -> FailureReport:
    """The report of a job that Kubernetes ended at its deadline.

    Args:
        why: why it has not started until then; empty if it has.
    """
    seconds = f" of {owner.deadline} s" if owner.deadline else ""
    if why:
        return FailureReport(
            FailureClass.TIME_LIMIT,
            f"the job reached its time limit{seconds} before it could start: {why}",
            "The limit is the activeDeadlineSeconds of its object, in which the time that it waits counts, too.",
            exit_code=SIGTERM_CODE,
            time=owner.ended,
        )
    return FailureReport(
        FailureClass.TIME_LIMIT,
        f"Kubernetes ended the job at its time limit{seconds}",
        f"The limit is the activeDeadlineSeconds of its object. {RESUMES}",
        exit_code=SIGTERM_CODE,
        time=owner.ended,
    )


def deleted(owner: Object, kind: str, now: float) -> FailureReport:
    """The report of a job whose main object disappeared while someone waited for it."""
    return FailureReport(
        FailureClass.KILLED,
        f"its {kind} was deleted in Kubernetes while the job lived",
        f"Someone deleted it, with kubectl for example; then all its pods end. {RESUMES}",
        exit_code=SIGTERM_CODE,
        time=when(owner, "metadata", "deletionTimestamp") or now,
    )
