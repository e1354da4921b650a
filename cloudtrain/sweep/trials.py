"""The trials of a sweep, reconstructed from its events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.errors import StorageError
from cloudtrain.sweep.journal import Journal
from cloudtrain.sweep.plan import SweepPlan

COMPLETED, PRUNED, FAILED, STOPPED, NO_VALUE = "Completed", "Pruned", "Failed", "Stopped", "No value"
"""The final states of trials. ``No value``: the job completed, but its metric is missing or not a finite number."""
RUNNING, ASKED = "Running", "Asked"


@dataclass
class Trial:
    """One trial: a job with the parameters that the sampler has chosen."""

    number: int
    name: str
    parameters: dict[str, Any]
    asked_at: float
    slot: int = 0
    """Its place among the concurrent trials: the lowest that is free when it is chosen, or when it is submitted by a
    controller with a smaller ``parallel``."""
    status: str = ASKED
    value: float | None = None
    """The last value of the metric, or the value at which the trial was pruned."""
    why: str = ""
    """The reason why it has no value, or failed."""
    failure_class: str | None = None
    values: dict[int, float] = field(default_factory=dict)
    """The metric by step, as far as it was reported to a pruner."""
    pruned_at: int | None = None
    """The step at which it was pruned."""
    ended_at: float | None = None
    max_cost: float | None = None
    """The cap of its job, if the sweep has one."""
    withdrawals: int = 0
    """The number of times that its submission was interrupted, and the job was withdrawn and resubmitted."""
    cost: float | None = None
    """The cost of all attempts of its job; None if it is not known, or the job has not ended."""
    currency: str | None = None
    """The currency of its cost."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """The attributes that the sampler and the pruner need after a restart."""

    @property
    def has_ended(self) -> bool:
        return self.ended_at is not None

    @property
    def trains(self) -> bool:
        """Whether its job is running and has not been pruned."""
        return self.status == RUNNING and self.pruned_at is None

    @property
    def parent(self) -> int | None:
        """The number of the trial from whose checkpoint it continues; None if it starts from scratch."""
        found = self.attributes.get("parent")
        return found if isinstance(found, int) else None

    def to_dict(self) -> dict[str, Any]:
        shown = (
            "number",
            "name",
            "status",
            "parameters",
            "value",
            "why",
            "failure_class",
            "pruned_at",
            "parent",
            "cost",
            "currency",
        )
        return {name: getattr(self, name) for name in (*shown, "asked_at", "ended_at")}


NO_BUDGET = "max_cost"
"""The reason why a sweep has ended if its remaining budget does not pay for another trial."""
ORDERLY = ("completed", "stopped", NO_BUDGET)


class DamagedEvents(StorageError):
    """The events of a sweep are damaged, so that retrying is useless."""


def read_trials(journal: Journal) -> Trials:
    """The state of a sweep. Raises DamagedEvents if its events are damaged or from a later version; StorageError."""
    try:
        found = Trials(journal.read()[0])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedEvents(f"{journal.folder}: the events of the sweep are damaged: {error!r}") from error
    if found.plan is None:
        raise DamagedEvents(f"{journal.folder}: the events of the sweep are damaged: none describes it")
    return found


def _lowest_free(taken: Collection[int]) -> int:
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


class Trials:
    """The state of a sweep after its events so far."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = ()) -> None:
        self.plan: SweepPlan | None = None
        self.all: list[Trial] = []
        self.created_at = 0.0
        self.continued_at = 0
        """The number of trials when the sweep was last continued. Problems of earlier trials may be solved by now."""
        self.finished: str | None = None
        """``completed``, ``stopped`` or a problem, once no further trials will start; None before."""
        for event in events:
            self.add(event)

    def add(self, event: Mapping[str, Any]) -> None:
        """Apply one event. Unknown events of later versions, and repeated events, have no effect."""
        kind = event["event"]
        if kind in ("created", "changed"):
            self.plan = SweepPlan.from_dict(event["plan"])
            self.created_at = self.created_at or event["time"]
            self.continued_at = len(self.all)
            self.finished = None
        elif kind == "finished":
            self.finished = event["why"]
        elif kind == "asked" and self.plan and event["trial"] == len(self.all):
            number = event["trial"]
            self.all.append(
                Trial(
                    number,
                    self.plan.trial_name(number),
                    event["parameters"],
                    event["time"],
                    event.get("slot", 0),
                    max_cost=event.get("max_cost"),
                    attributes=event.get("attributes") or {},
                )
            )
        elif kind in ("placed", "submitted", "withdrawn", "pruned", "ended") and 0 <= event["trial"] < len(
            self.all
        ):
            self._change(self.all[event["trial"]], kind, event)

    def _change(self, trial: Trial, kind: str, event: Mapping[str, Any]) -> None:
        if trial.has_ended:
            return
        if kind == "placed":
            trial.slot = event["slot"]
        elif kind == "submitted":
            trial.status = RUNNING
        elif kind == "withdrawn":
            trial.withdrawals += trial.status == RUNNING
            trial.status = ASKED
        elif kind == "pruned":
            trial.pruned_at, trial.value = event["step"], event["value"]
        else:
            trial.status, trial.ended_at = event["status"], event["time"]
            trial.value, trial.why = event["value"], event["why"]
            trial.failure_class, trial.cost = event["failure_class"], event.get("cost")
            trial.currency = event.get("currency")
            trial.values = {int(step): value for step, value in event["values"].items()}
            trial.attributes |= event["attributes"]

    @property
    def open(self) -> list[Trial]:
        """The trials that have not ended. Each has a job, or is about to have one."""
        return [trial for trial in self.all if not trial.has_ended]

    @property
    def wanted(self) -> int:
        """The number of trials of the sweep, as far as it is known: a population replaces pruned and failed trials."""
        return self.wanted_by(self.plan) if self.plan else 0

    def wanted_by(self, plan: SweepPlan) -> int:
        """Like `wanted`, if the sweep is continued with another plan."""
        if plan.sampler != "pbt":
            return plan.trials
        if len(self.all) >= plan.parallel and not any(trial.trains for trial in self.all):
            return len(self.all)  # no trial remains from which others could continue
        return min(plan.trials, plan.parallel + sum(trial.status in (PRUNED, FAILED) for trial in self.all))

    @property
    def committed(self) -> float:
        """The costs of the trials that have ended, plus the caps of those that are running or have no known cost."""
        return sum((trial.max_cost or 0.0) if trial.cost is None else trial.cost for trial in self.all)

    @property
    def cost(self) -> float | None:
        """The cost of the trials that have ended; None if no cost is known, or costs are in several currencies."""
        known = [trial.cost for trial in self.all if trial.cost is not None]
        return sum(known) if known and len(self.currencies) <= 1 else None

    @property
    def currencies(self) -> list[str]:
        """The currencies of the costs. There are several if the user's table of prices was changed meanwhile."""
        return sorted({trial.currency for trial in self.all if trial.currency})

    @property
    def usual_cost(self) -> float:
        """The cost that 95 % of the trials with a known cost did not exceed; 0 if there are none."""
        known = sorted(trial.cost for trial in self.all if trial.cost)
        return known[int(0.95 * (len(known) - 1))] if known else 0.0

    def next_cap(self) -> float | None:
        """The cap of the next trial, which is its share of the remaining budget; 0 if that does not pay for a usual
        trial, or if the costs so far are in several currencies.

        None if the sweep has no cap.
        """
        if self.plan is None or self.plan.max_cost is None:
            return None
        if len(self.currencies) > 1:
            return 0.0
        left = self.plan.max_cost - self.committed
        share = max(left / max(self.plan.parallel - len(self.open), 1), self.usual_cost)
        return share if 0 < share <= left else 0.0

    @property
    def free_slot(self) -> int:
        return _lowest_free({trial.slot for trial in self.open})

    def slot_of(self, trial: Trial) -> int | None:
        """The slot of a trial that is about to be submitted; None if ``parallel`` other trials take precedence.

        These are the trials that have jobs, and those that were chosen earlier.
        """
        before = [one for one in self.open if one.status != ASKED or one.number < trial.number]
        parallel = self.plan.parallel if self.plan else 0
        if len(before) >= parallel:
            return None
        taken = {one.slot for one in before}
        return trial.slot if trial.slot < parallel and trial.slot not in taken else _lowest_free(taken)

    @property
    def best(self) -> Trial | None:
        """The completed trial with the best value; the first one if there are several."""
        known = [trial for trial in self.all if trial.status == COMPLETED and trial.value is not None]
        if not known or self.plan is None:
            return None
        sign = 1.0 if self.plan.goal == "minimize" else -1.0
        return min(known, key=lambda trial: sign * (trial.value or 0.0))

    @property
    def repeated(self) -> int:
        """The number of trials that repeat the parameters of an earlier one."""
        return len(self.all) - len({repr(sorted(trial.parameters.items())) for trial in self.all})
