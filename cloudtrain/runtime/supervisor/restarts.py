"""Decides whether a job restarts after an attempt, by the cause of its end and by its progress.

Each kind of cause has its own budget. Progress, a step beyond all earlier ones, makes it full again. The job does not
restart after a failure that would recur: the same exception, in the same line, after the same step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.settings import STOP_ON_HANG
from cloudtrain.runtime.diagnose.first_cause import NOT_WORTH_A_RETRY
from cloudtrain.runtime.diagnose.recurrence import cause_of, happened_twice
from cloudtrain.runtime.supervisor.places import LOSES_ITS_PLACE, leave_out, without
from cloudtrain.runtime.supervisor.record import JobRecord

REPEATED_CODE = 93
"""The exit code of a job that ends because the same failure happened twice."""


@dataclass(frozen=True)
class Budget:
    """The restarts that a job may make for one kind of cause without progress."""

    name: str
    """The name of one restart, for display."""
    limit: str
    """The field of the request that limits the restarts; empty if the number of hosts does."""
    spent: str
    """The field of the record that counts the restarts."""

    def is_spent(self, record: JobRecord, request: Mapping[str, Any]) -> bool:
        return bool(getattr(record, self.spent) >= request[self.limit])

    def spend(self, record: JobRecord) -> JobRecord:
        """The record of the next attempt."""
        return replace(record, attempt=record.attempt + 1, **{self.spent: getattr(record, self.spent) + 1})

    def describe(self, record: JobRecord, request: Mapping[str, Any]) -> str:
        """For example: ``preemption 1 of 10``."""
        if not self.limit:
            return self.name
        spent, limit = getattr(record, self.spent), request.get(self.limit, 0)
        return f"{self.name} {spent}" + (f" of {limit}" if spent <= limit else "")


RETRIES = Budget("retry", "max_retry_attempts", "retries")
HOST_LOSSES = Budget("restart after a lost host", "max_retry_attempts", "host_losses")
HANGS = Budget("restart after a hang", "max_retry_attempts", "hangs")
PREEMPTIONS = Budget("preemption", "max_preemptions", "preemptions")
TAKEOVERS = Budget("spare host", "spare_hosts", "takeovers")
"""Not in `BUDGETS`, because a spare host is used once, and progress frees none. A host that rejoins is a new one."""
DROPS = Budget("with fewer hosts", "", "takeovers")
BUDGETS = (RETRIES, HOST_LOSSES, HANGS, PREEMPTIONS)

_OF_CLASS = {
    FailureClass.HOST_LOST: HOST_LOSSES,
    FailureClass.GPU_FAULT: HOST_LOSSES,
    FailureClass.HANG: HANGS,
}


class Decision(NamedTuple):
    """The consequence of the end of an attempt."""

    restarts: bool
    budget: Budget
    """The budget for the cause of the end."""
    record: JobRecord
    """The record updated with this end. `Budget.spend` returns the record of the next attempt."""
    repeats: str = ""
    """Why another attempt would end in the same way, as a sentence without a full stop."""
    lost: tuple[str, ...] = ()
    """The hosts that lose their places, either to spare hosts or because the job continues without them."""


def decide(
    record: JobRecord,
    failure: FailureReport | None,
    step: int | None,
    request: Mapping[str, Any],
    spares: Sequence[str] = (),
    reclaimed: Collection[str] = (),
) -> Decision:
    """Decide whether a job restarts after an attempt.

    Args:
        failure: why the attempt ended; None for a preemption.
        step: the last step that the attempt reported; None if it reported none.
        request: the body of the job's request.
        spares: the spare hosts that could take a place now.
        reclaimed: the hosts that a preemption took back, if it did not take all of them.
    """
    budget = PREEMPTIONS if failure is None else _OF_CLASS.get(failure.failure_class, RETRIES)
    cause = cause_of(failure, step) if failure else ""
    is_same = bool(cause) and (cause, step) == (record.cause, record.cause_step)
    if step is not None and step > (-1 if record.furthest is None else record.furthest):
        # a bug that occurs after every step would otherwise cost an attempt for each step
        recurs = bool(cause) and cause == record.cause
        unspent: dict[str, Any] = {one.spent: 0 for one in BUDGETS if not (recurs and one is budget)}
        record = replace(record, furthest=step, **unspent)
    if failure:  # keep the cause across preemptions, so that the same failure is recognised
        record = replace(record, cause=cause, cause_step=step)
    least = request.get("min_instance_count", 0)
    lost = tuple(name for name in record.hosts if name in reclaimed)
    changed = without(record, lost, spares, least) if failure is None and lost else None
    if changed:
        return Decision(True, DROPS if len(lost) > len(spares) else TAKEOVERS, changed, lost=lost)
    if failure is None:
        return Decision(not budget.is_spent(record, request), budget, record)
    if failure.failure_class in NOT_WORTH_A_RETRY:
        return Decision(False, budget, record)
    if (
        failure.failure_class == FailureClass.HANG
        and request.get("settings", {}).get("on_hang") == STOP_ON_HANG
    ):
        return Decision(False, budget, record)
    if is_same and not budget.is_spent(record, request):
        return Decision(False, budget, record, happened_twice(cause, step))
    record, lost = leave_out(record, failure, spares, least)
    if lost and failure.failure_class in LOSES_ITS_PLACE:
        return Decision(True, TAKEOVERS if spares else DROPS, record, lost=lost)
    return Decision(not budget.is_spent(record, request), budget, record, lost=lost)
