"""Describes a job from its objects: its status, why it waits, its hosts, how it ended, and its states so far."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.documents import parse_json
from cloudtrain.contract.ending import Ending
from cloudtrain.observe import Goodput, Summary
from cloudtrain.platforms.base import HostState, JobDescription, JobState
from cloudtrain.platforms.common.failure import LastLines
from cloudtrain.platforms.kubernetes.api.refusals import Why
from cloudtrain.platforms.kubernetes.labels import SETTINGS
from cloudtrain.platforms.kubernetes.life import reasons
from cloudtrain.platforms.kubernetes.life.failure import (
    SIGTERM_CODE,
    cause_of,
    find_failure,
    given_up,
    is_explained,
    leaders_ending,
    time_limit,
)
from cloudtrain.platforms.kubernetes.life.objects import EventIndex, Owner, Snapshot, annotation, text
from cloudtrain.platforms.kubernetes.life.pods import Pod, all_pods, current, newest
from cloudtrain.platforms.kubernetes.life.waiting import why_pod, why_stuck, why_waiting
from cloudtrain.storage import join_uri

MOST_STATES = 200
"""The maximum number of states to keep: a full cluster may report something new every few seconds."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a job so far."""

    status: JobStatus
    reason: str = ""
    failure: FailureReport | None = None
    why: Why | None = None
    """Why it waits; None if it does not."""


@dataclass(frozen=True)
class Look:
    """The objects of a job at one moment, and the outcome so far."""

    objects: Snapshot
    now: float
    owner: Owner
    pods: list[Pod]
    """All pods, including deleted ones."""
    verdict: Verdict


def look_at(objects: Snapshot, now: float, last_lines: LastLines | None = None) -> Look:
    """Judge a job whose main object exists. ``last_lines``: see `find_failure`."""
    pods, owner = pods_of(objects, gone=True), Owner(objects.owner or {})
    return Look(objects, now, owner, pods, _judge(owner, objects, pods, now, last_lines))


def settings_of(owner: Owner) -> Mapping[str, Any]:
    """The settings that the submission stored in the job's main object; empty if they are damaged or missing."""
    with contextlib.suppress(ValueError):
        found = parse_json(annotation(owner.found, SETTINGS))
        return found if isinstance(found, dict) else {}
    return {}


def spares_of(owner: Owner) -> int:
    """The number of spare hosts."""
    spares = settings_of(owner).get("spare_hosts", 0)
    return spares if isinstance(spares, int) else 0


def pods_of(objects: Snapshot, *, gone: bool = False) -> list[Pod]:
    """All pods of a job, with its leader marked; with ``gone`` also deleted ones, in their last state."""
    hosts = settings_of(Owner(objects.owner or {})).get("hosts")
    leader = hosts[0] if isinstance(hosts, list) and hosts and isinstance(hosts[0], str) else ""
    return all_pods(objects.pods, leader, objects.gone if gone else ())


def _judge(
    owner: Owner, objects: Snapshot, pods: Sequence[Pod], now: float, last_lines: LastLines | None
) -> Verdict:
    """The outcome of a job so far. ``pods`` are all pods, including deleted ones."""
    latest = current(pods)
    live = [pod for pod in latest if not pod.is_over]
    stuck = why_stuck(live, now)
    if owner.complete:
        return Verdict(JobStatus.COMPLETED)
    report = given_up(owner)
    # a JobSet ends with its Jobs, whose time limit is set after the annotation: the client may be killed in between
    if report and (owner.kind != "JobSet" or owner.failed or owner.is_suspended):
        return Verdict(JobStatus.FAILED, failure=report)
    if owner.stopped_at is not None:
        over = owner.failed or owner.is_suspended
        by = f"stopped by the user; {stuck}" if stuck else "stopped by the user"
        return Verdict(JobStatus.STOPPED if over and not live else JobStatus.STOPPING, by)
    if owner.failed and not (owner.is_failing and live):
        return _ended(owner, newest(pods), last_lines)
    if owner.is_failing:
        return Verdict(JobStatus.STOPPING, str(stuck or ""))
    if owner.is_deleted:
        return Verdict(JobStatus.STOPPING, "it is being deleted in Kubernetes")
    if owner.is_suspended and objects.workload is not None and not reasons.is_active(objects.workload):
        is_limit = reasons.reached_time_limit(objects.workload)  # Kueue will not restart it by itself
        status = JobStatus.STOPPED if is_limit else JobStatus.INTERRUPTED
        return Verdict(status, str(reasons.deactivated(objects.workload)))
    why = why_waiting(objects, latest, now, spares_of(owner))
    if why is None:
        return Verdict(JobStatus.RUNNING)
    lost = _lost(pods, latest)
    sentence = f"{lost} {why}" if lost else str(why)
    return Verdict(JobStatus.PENDING, sentence[:1].lower() + sentence[1:] if lost else sentence, why=why)


def _ended(owner: Owner, latest: Sequence[Pod], last_lines: LastLines | None) -> Verdict:
    ending = leaders_ending(owner, latest)
    if owner.reached_deadline:
        started = any(pod.started for pod in latest) or ending is not None
        waits = "" if started or not latest else why_pod(latest[0], EventIndex(())).sentence
        return Verdict(JobStatus.STOPPED, failure=time_limit(owner, waits))
    if ending and ending.failure and ending.status == JobStatus.STOPPED:  # at its time limit
        return Verdict(ending.status, failure=ending.failure)
    status = JobStatus.INTERRUPTED
    if ending and not ending.failure and ending.status in (JobStatus.STOPPED, JobStatus.INTERRUPTED):
        if not is_explained(latest):
            return Verdict(ending.status, "it was asked to end")
        status = ending.status
    failure = find_failure(owner, latest, last_lines)
    is_preempted = failure.failure_class == FailureClass.PREEMPTED
    return Verdict(status if is_preempted else JobStatus.FAILED, failure=failure)


def leaders_verdict(look: Look) -> Verdict | None:
    """The leader's report of a job's end, if the main object was deleted before it had one; None if unknown."""
    ending = leaders_ending(look.owner, newest(look.pods))
    has_ended = ending and ending.status in (JobStatus.COMPLETED, JobStatus.FAILED)
    return Verdict(ending.status, failure=ending.failure) if ending and has_ended else None


def _lost(pods: Sequence[Pod], latest: Sequence[Pod]) -> str:
    """Why a job that had started is waiting: the cause that ended the pods of its last attempt."""
    now = {pod.uid for pod in latest}
    gone = [(pod, cause_of(pod)) for pod in pods if pod.uid not in now]
    causes = [cause for pod, cause in sorted(gone, key=lambda one: -one[0].created) if cause]
    deleted = [pod for pod, cause in gone if pod.is_deleted and not cause]
    if causes:
        return f"it restarts, because {causes[0].message.rstrip('.')}."
    return f"it restarts, because pod {deleted[-1].name} was deleted." if deleted else ""


def attempts(owner: Owner, pods: Sequence[Pod], objects: Snapshot) -> int:
    """How often the job was restarted."""
    leader = next((pod.host for pod in pods if pod.is_leader), "")
    seen = {pod.name for pod in pods if pod.is_leader}
    if leader:
        for event in EventIndex(objects.events).about(owner.found):
            word, _, name = text(event, "message").rpartition(" ")
            if word == "Created pod:" and name.startswith(f"{leader}-"):
                seen.add(name)
    in_place = max((pod.restarts for pod in pods if pod.is_leader), default=0)
    return max(len(seen) - 1, owner.restarts(), in_place, 0)


def describe(look: Look, *, summary: Summary | None = None, command: str = "") -> JobDescription:
    """The description of a job, with the summary of its leader's events, and a ``command`` that shows its object."""
    owner, pods, verdict, objects, now = look.owner, look.pods, look.verdict, look.objects, look.now
    settings, summary = settings_of(owner), summary or Summary()
    latest = newest(pods) if verdict.status.is_final else current(pods)
    ending = leaders_ending(owner, newest(pods))
    known = ending if verdict.status.is_final else None
    running = verdict.status in (JobStatus.RUNNING, JobStatus.STOPPING)
    starts = [pod.started for pod in pods if pod.started is not None]
    events = EventIndex(objects.events)
    return JobDescription(
        name=owner.name,
        platform="kubernetes",
        status=verdict.status,
        submitted_at=owner.created,
        started_at=min(starts, default=None) or (owner.started if ending else None),
        ended_at=_ended_at(owner, latest, verdict, now),
        attempt=attempts(owner, pods, objects),
        exit_code=_exit_code(verdict),
        failure=verdict.failure,
        reason=verdict.reason,
        phase=summary.phase if running else None,
        phases=dict(known.phases if known else summary.phases),
        hosts=[HostState(pod.host, pod.state(), _about(pod, events)) for pod in latest],
        **{
            **summary.steps.result(now, is_running=verdict.status == JobStatus.RUNNING),
            **(known.steps if known else {}),
        },
        metrics=dict(known.metrics if known and known.metrics else summary.metrics),
        samples=summary.last_samples(),
        goodput=Goodput(**known.goodput)
        if known and known.goodput
        else summary.meter.result(owner.created, None, now)
        if running
        else None,
        model_data=_output(settings, ending, summary, "model"),
        output_data=_output(settings, ending, summary, "output"),
        warnings=_warnings(objects, known, summary),
        checkpoint_uri=_text(settings, "checkpoint_uri"),
        git_commit=_text(settings, "git_commit"),
        details=_details(owner, latest, objects, verdict.status)
        | ({"object": command} if command else {})
        | summary.details,
    )


def _ended_at(owner: Owner, latest: Sequence[Pod], verdict: Verdict, now: float) -> float | None:
    if not verdict.status.is_final:
        return None
    ends = [pod.end.ended for pod in latest if pod.end and pod.end.ended]
    since = owner.suspended_since if owner.is_suspended else None
    return owner.ended or since or max(ends, default=None) or owner.stopped_at or now


def _exit_code(verdict: Verdict) -> int | None:
    if verdict.failure:
        return verdict.failure.exit_code
    ended = dict.fromkeys((JobStatus.STOPPED, JobStatus.INTERRUPTED), SIGTERM_CODE)
    return {JobStatus.COMPLETED: 0, JobStatus.FAILED: 1, **ended}.get(verdict.status)


def _about(pod: Pod, events: EventIndex) -> str:
    """``on node gpu-1, 2 restarts``; for a pod that waits, also the reason."""
    facts = [f"on node {pod.node}"] if pod.node else []
    if pod.restarts:
        facts.append(f"{pod.restarts} restart{'s' * (pod.restarts > 1)}")
    if not pod.is_over and not pod.is_running and not pod.is_deleted:
        facts.append(why_pod(pod, events).sentence)
    return ", ".join(facts)


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return value if isinstance(value, str) and value else None


def _output(settings: Mapping[str, Any], ending: Ending | None, summary: Summary, kind: str) -> str | None:
    """The URI of one kind of outputs, if uploaded. The configured URI is used, not one that the job reports."""
    folder = _text(settings, "output_uri")
    uploaded = {**summary.uploaded, **(ending.uploaded if ending else {})}
    if kind not in uploaded or not folder:
        return None
    return join_uri(folder, f"{kind}.tar.gz" if settings.get("compress_output") is not False else kind)


def _warnings(objects: Snapshot, known: Ending | None, summary: Summary) -> list[str]:
    found = [*summary.warnings, *(known.warnings if known else ())]
    found += [f"why it waits may be unknown: {why}" for why in objects.unseen.values()]
    if objects.problem:
        found.append(objects.problem)
    return list(dict.fromkeys(found))


def _details(owner: Owner, latest: Sequence[Pod], objects: Snapshot, status: JobStatus) -> dict[str, str]:
    details = {}
    if latest and not status.is_final:
        running = sum(pod.is_running for pod in latest)
        details["pods"] = f"{running} of {owner.hosts} running"
    if owner.queue:
        queue = reasons.queue_of(objects.workload) if objects.workload else ""
        details["queue"] = queue or owner.queue
    return details


@dataclass
class StateLog:
    """The history of a job. Each change of its state, or of the reason why it waits, is a `JobState`."""

    states: list[JobState] = field(default_factory=list)
    attempt: int = 0

    def update(self, look: Look) -> list[JobState]:
        """All states so far, including the current one."""
        owner, pods, verdict, now = look.owner, look.pods, look.verdict, look.now
        attempt = attempts(owner, pods, look.objects)
        if not self.states:
            self._begin(owner, pods, verdict)
        has_run = self.states[-1].name in ("Running", "Restarting") or any(pod.end for pod in pods)
        name, message = _named(verdict, pods, has_run or attempt > self.attempt)
        last = self.states[-1]
        if (name, message) != (last.name, last.message):
            when = _since(owner, pods, verdict, name)
            self.states.append(JobState(max(when or now, last.time), name, message))
        self.attempt = attempt
        del self.states[1:-MOST_STATES]
        return list(self.states)

    def end(self, state: JobState) -> list[JobState]:
        """All states of a deleted job, which ended with ``state``."""
        if not self.states or self.states[-1].name != state.name:
            self.states.append(state)
        return list(self.states)

    def _begin(self, owner: Owner, pods: list[Pod], verdict: Verdict) -> None:
        """The states before the first query."""
        if verdict.status != JobStatus.PENDING:
            self.states.append(JobState(owner.created, "Pending"))
            started = [pod.started for pod in pods if pod.started is not None]
            if started and verdict.status != JobStatus.RUNNING:
                self.states.append(JobState(min(started), "Running", _nodes(pods)))
        else:
            self.states.append(JobState(owner.created, "Pending", verdict.reason))


def _named(verdict: Verdict, pods: list[Pod], is_restart: bool) -> tuple[str, str]:
    if verdict.status == JobStatus.RUNNING:
        return "Running", _nodes(current(pods))
    if verdict.status == JobStatus.PENDING and is_restart:
        return "Restarting", verdict.reason
    if verdict.failure:
        return str(verdict.status), verdict.failure.summary()
    return str(verdict.status), verdict.reason


def _nodes(pods: list[Pod]) -> str:
    nodes = list(dict.fromkeys(pod.node for pod in pods if pod.node))
    if not nodes:
        return ""
    shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    return f"on node{'s' * (len(nodes) > 1)} {shown}"


def _since(owner: Owner, pods: list[Pod], verdict: Verdict, name: str) -> float | None:
    """When the new state began; None if unknown."""
    if name == "Running":
        return max((pod.started for pod in current(pods) if pod.started is not None), default=None)
    if verdict.status.is_final:
        return owner.ended
    if verdict.status == JobStatus.STOPPING:
        return owner.stopped_at
    return verdict.why.since if verdict.why else None
