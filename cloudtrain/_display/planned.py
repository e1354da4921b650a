"""A plan and its accuracy as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloudtrain._display.steps import span
from cloudtrain.plan.choose import Plan
from cloudtrain.plan.estimate import Estimate, Range

if TYPE_CHECKING:
    from cloudtrain.history.predictions import Prediction

HEADINGS = ("HOSTS", "GPUS", "TIME", "COST", "LIMITED BY")
RIGHT = ("GPUS",)
UNKNOWN = "not known"


def rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """The three lines of a plan."""
    for name, one in plan.choices():
        yield (name, *row(one)) if one else (name, "none of the options", "", "", "", _why_none(plan))


def row(one: Estimate) -> tuple[str, ...]:
    offer = one.offer
    hosts = f"{offer.hosts} x {offer.instance_type}" if offer.instance_type else f"{offer.hosts}"
    cost = f"{money(one.cost, offer.currency)}" if one.cost else UNKNOWN
    return f"{hosts}{' spot' if offer.spot else ''}", f"{offer.gpus:,}", times(one.seconds), cost, one.limit


def times(seconds: Range) -> str:
    """``13 h 5 min (12 h 0 min to 15 h 2 min)``."""
    return f"{span(seconds.expected)} ({span(seconds.low)} to {span(seconds.high)})"


def money(cost: Range, currency: str) -> str:
    """``$163.89 (29.51 to 312.88)``; a small cost in two digits: ``0.0014 (0.0014 to 0.0017) EUR``."""
    form = ",.2f" if cost.expected >= 0.1 else ".2g"
    low, expected, high = (f"{amount:{form}}" for amount in cost)
    sign = "$" if currency == "USD" else ""
    return f"{sign}{expected} ({low} to {high})" + ("" if sign else f" {currency}")


def notes(plan: Plan) -> Iterator[str]:
    """The facts and the assumptions that the numbers rest on."""
    for label, texts in (("measured", plan.measured), ("assumed", plan.assumed)):
        for number, text in enumerate(texts):
            yield f"{'' if number else label:<9} {text}"


def _why_none(plan: Plan) -> str:
    return "the budget" if not plan.affordable else "the deadline"


def prediction_text(found: Prediction) -> str:
    """``3 min 2 s (2 min 58 s to 4 min 1 s), 8% longer than it took``, and likewise the cost."""
    parts = [
        [times(Range(*found.seconds)), time_off(found.error)],
        [money(Range(*found.cost), found.currency or ""), cost_off(found.cost_error)] if found.cost else [],
    ]
    return "; ".join(", ".join(filter(None, part)) for part in parts if part)


def time_off(error: float | None) -> str:
    """``8% longer than it took``; empty if that is not known."""
    return "" if error is None else f"{abs(error):.0%} {'longer' if error >= 0 else 'shorter'} than it took"


def cost_off(error: float | None) -> str:
    """``8% more than it cost``; empty if that is not known."""
    return "" if error is None else f"{abs(error):.0%} {'more' if error >= 0 else 'less'} than it cost"
