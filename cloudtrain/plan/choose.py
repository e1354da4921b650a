"""The options of a plan, and the three best ones: the cheapest, the fastest, and the cheapest by a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.plan.estimate import HOUR, Estimate


@dataclass(frozen=True)
class Plan:
    """The time and cost of a training job on several offers. Times are in seconds."""

    estimates: Sequence[Estimate]
    deadline: float | None = None
    """The deadline in seconds from now."""
    budget: float | None = None
    measured: Sequence[str] = ()
    """The facts on which the estimates are based, as text."""
    assumed: Sequence[str] = ()
    """The assumptions that replace unknown facts, as text."""

    @property
    def affordable(self) -> list[Estimate]:
        """The estimates whose expected cost is within the budget."""
        if self.budget is None:
            return [*self.estimates]
        return [one for one in self.estimates if one.cost and one.cost.expected <= self.budget]

    @property
    def cheapest(self) -> Estimate | None:
        """The cheapest estimate by cost; if no price is known, by GPU hours."""
        return min(self.affordable, key=_price, default=None)

    @property
    def fastest(self) -> Estimate | None:
        return min(self.affordable, key=lambda one: (one.seconds.expected, _price(one)), default=None)

    @property
    def cheapest_by_deadline(self) -> Estimate | None:
        """The cheapest estimate that meets the deadline even in the pessimistic case; None if there is none."""
        limit = self.deadline
        if limit is None:
            return None
        return min((one for one in self.affordable if one.seconds.high <= limit), key=_price, default=None)

    def choices(self) -> Iterator[tuple[str, Estimate | None]]:
        """The best estimates, with their names."""
        yield "cheapest", self.cheapest
        yield "fastest", self.fastest
        if self.deadline is not None:
            yield "cheapest by the deadline", self.cheapest_by_deadline

    def check_budget(self) -> None:
        """Raises InvalidJob if the budget does not pay for a single step on any offer, or if no price is known."""
        if self.budget is None:
            return
        first = [
            one.cost.low * (one.step.low / one.seconds.low) for one in self.estimates if one.cost is not None
        ]
        if not first:
            raise InvalidJob(
                "--budget: no price is known for these hosts",
                hint="Add their prices to the section prices of the config file: docs/guides/cost.md.",
            )
        if self.budget < min(first):
            raise InvalidJob(
                f"--budget: {self.budget:g} does not pay for the first step, which costs {min(first):.2g}",
                hint="Raise it.",
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "choices": {name: one.to_dict() if one else None for name, one in self.choices()},
            "options": [one.to_dict() for one in self.estimates],
            "deadline_seconds": self.deadline,
            "budget": self.budget,
            "measured": [*self.measured],
            "assumed": [*self.assumed],
        }


def _price(one: Estimate) -> tuple[bool, str, float, float]:
    """Sort key by expected cost. Currencies are not compared. Estimates without a cost are last, by GPU hours."""
    hours = one.offer.gpus * one.seconds.expected / HOUR
    currency = one.offer.currency if one.cost else ""
    return one.cost is None, currency, one.cost.expected if one.cost else hours, one.seconds.expected


HOW_TO_PLAN = "Write one with: cloudtrain plan FILE --save PLAN"


def _hosts(count: int, instance_type: str | None) -> str:
    return f"{count} x {instance_type}" if instance_type else f"{count} host{'' if count == 1 else 's'}"


def option_for(plan: Mapping[str, Any], instance_type: str | None, hosts: int, spot: bool) -> dict[str, Any]:
    """The option of a saved plan for these hosts. Raises InvalidJob if there is none, or ``plan`` is not a plan."""
    try:
        options: list[dict[str, Any]] = [*plan["options"]]
        fitting = [
            one
            for one in options
            if one["hosts"] == hosts and one["instance_type"] == instance_type and one["spot"] == spot
        ]
        known = sorted({_hosts(one["hosts"], one["instance_type"]) for one in options})
    except (KeyError, TypeError):
        raise InvalidJob("--plan: the file is not a plan", hint=HOW_TO_PLAN) from None
    if not fitting:
        raise InvalidJob(
            f"the plan has no option for {_hosts(hosts, instance_type)}{' on spot capacity' if spot else ''}",
            hint=f"It has: {', '.join(known)}. Set instance_type and instance_count, or plan again.",
        )
    return fitting[0]
