"""The notifications of a job: those that its supervisor posts while the job runs, and the one about its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.trackers import new_run_id
from cloudtrain.observe import steady
from cloudtrain.observe.hanging import MOST_CALLS, Hanging
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import Outbox
from cloudtrain.runtime.notifications.rules import rules_of
from cloudtrain.runtime.supervisor.caps import HOUR, amount, hourly, money
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord

_EVENTS = {
    JobStatus.FAILED: "failed",
    JobStatus.COMPLETED: "completed",
    JobStatus.STOPPED: "stopped",
    JobStatus.INTERRUPTED: "preempted",
}


class JobNotifications:
    """Posts notifications about a job before its end. Errors of the outbox never affect the job."""

    def __init__(self, folder: JobFolder, body: Mapping[str, Any]) -> None:
        self._folder = folder
        self._hangs = 0
        """How many hangs have been posted."""
        limits = [rule for rule in rules_of(body) if rule.cost_above]
        hosts = body.get("host_count", 1)
        self._limits = {rule: hosts * rule.price_per_hour for rule in limits}
        """For each rule with a limit, its own price of an hour of all hosts."""
        self.price(body)

    def price(self, body: Mapping[str, Any]) -> None:
        """From now on, use the price in the terms of ``body`` instead of those of the rules."""
        self._body, self._hourly = body, hourly(body.get("cost_terms"))

    def attempt_ended(self, record: JobRecord, failure: FailureReport | None, why: str) -> None:
        """Post a notification if an attempt was preempted, or if a rank hung, and another attempt follows.

        Args:
            record: the record of the attempt that has ended.
            why: the reason for a preemption.
        """
        if failure and failure.failure_class != FailureClass.HANG:
            return
        event = "hanging" if failure else "preempted"
        again = "the job restarts from its last checkpoint"
        self._post(record, event, str(record.attempt), summary=why, failure=failure, details=(again,))

    def look_at_cost(self, record: JobRecord, seconds: float) -> None:
        """Post a notification for each limit that the job exceeds, after ``seconds`` on all its hosts."""
        for rule, own in [*self._limits.items()]:
            price = self._hourly or own
            cost, currency = amount(self._body, seconds) or (own * seconds / HOUR, "USD")
            if cost > rule.cost_above:
                del self._limits[rule]
                limit = rule.cost_above
                summary = f"about {money(cost, currency)} so far, more than {money(limit, currency)}"
                how = f"{duration(seconds)} at {money(price, currency)} per hour"
                self._post(record, "cost", f"{rule.cost_above:g}", summary=summary, details=(how,))

    def look_at_hangs(self, record: JobRecord, hangs: Sequence[Hanging]) -> None:
        """Post a notification for each hang that does not end the job."""
        new, self._hangs = hangs[self._hangs :], len(hangs)
        for number, hang in enumerate(new, self._hangs - len(new)):
            stack = tuple(hang.stack.splitlines()[:MOST_CALLS])
            self._post(record, "hanging", f"{record.attempt}-{number}", summary=str(hang), details=stack)

    def _post(self, record: JobRecord, event: str, number: str, **texts: Any) -> None:
        name = self._folder.name
        key = f"{new_run_id(name, record.submitted_at)}/{event}/{number}"
        platform = self._folder.path.parent.name
        with suppress(OSError):  # a full disk
            Outbox(self._folder.path).post(
                Notification.of(key, event, name, platform, record.attempt, steady.now(), **texts)
            )


class Ended(Protocol):
    """The end of a job, as a `JobRecord` or the client's description has it."""

    @property
    def status(self) -> JobStatus: ...
    @property
    def submitted_at(self) -> float: ...
    @property
    def started_at(self) -> float | None: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def failure(self) -> FailureReport | None: ...
    @property
    def reason(self) -> str: ...


def end_notification(job_name: str, platform: str, record: Ended) -> Notification:
    """The notification of the end of a job, whose record is final."""
    details = []
    if record.started_at is not None and record.ended_at is not None:
        details.append(f"it took {duration(max(0.0, record.ended_at - record.started_at))}")
    if record.attempt:
        details.append(f"attempt {record.attempt + 1}")
    return Notification.of(
        end_key(job_name, record.submitted_at),
        _EVENTS.get(record.status, "stopped"),
        job_name,
        platform,
        record.attempt,
        record.ended_at or steady.now(),
        summary=record.reason,
        failure=record.failure,
        details=tuple(details),
    )


def end_key(job_name: str, submitted_at: float) -> str:
    """The key of the notification of a job's end, which is the same in all processes that may send it."""
    return f"{new_run_id(job_name, submitted_at)}/end"


def duration(seconds: float) -> str:
    """
    >>> duration(7.4), duration(90), duration(3700)
    ('7 s', '1 min', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
