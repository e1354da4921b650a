"""The states of a job so far, as lines for the user who waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloudtrain.contract import JobStatus
from cloudtrain.platforms.base import JobState
from cloudtrain.platforms.kubernetes.life.describe import Look, Verdict, attempts
from cloudtrain.platforms.kubernetes.life.owner import Owner
from cloudtrain.platforms.kubernetes.life.pods import Pod, current

MOST_STATES = 200
"""The states that are kept: a cluster that is full may say something else every few seconds."""


@dataclass
class StateLog:
    """The history of a job: each change of its state, or of why it waits, is a `JobState`."""

    states: list[JobState] = field(default_factory=list)
    attempt: int = 0

    def update(self, look: Look) -> list[JobState]:
        """All states so far, given the job as it is now."""
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
        """All states of a job that is gone, which ended with ``state``."""
        if not self.states or self.states[-1].name != state.name:
            self.states.append(state)
        return list(self.states)

    def _begin(self, owner: Owner, pods: list[Pod], verdict: Verdict) -> None:
        """The states before anybody asked."""
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
    """When the new state began; None: now, as far as anybody knows."""
    if name == "Running":
        return max((pod.started for pod in current(pods) if pod.started is not None), default=None)
    if verdict.status.is_final:
        return owner.ended
    if verdict.status == JobStatus.STOPPING:
        return owner.stopped_at
    return verdict.why.since if verdict.why else None
