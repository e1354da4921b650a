"""The values of past jobs, as the cells of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain._display.view import moment
from cloudtrain.history.past_job import PastJob
from cloudtrain.history.sql import FIELDS, TIME, Field

if TYPE_CHECKING:
    from cloudtrain.cost import Cost

UNITS = {"duration": "{:.1f} s", "plan_error": "{:+.0%}", "plan_cost_error": "{:+.0%}"}


def cost_of(job: PastJob) -> Cost | None:
    """The cost of a past job. If it was recorded without a currency, it is in the currency of today's prices."""
    if job.cost is None:
        return None
    from cloudtrain.cost import Cost, currency_of

    return Cost(job.cost, job.currency or currency_of(job.platform))


def cell(field: Field, job: PastJob) -> str:
    """The value of a field, a parameter or a metric; empty if there is none. A job may have written it: escape it."""
    value = field.of(job)
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if field.kind == "field" and FIELDS[field.name][1] == TIME:
        return moment(value)
    if field.kind == "field" and field.name in UNITS:
        return UNITS[field.name].format(value)
    if field.kind == "field" and field.name == "cost":
        return str(cost_of(job))
    return f"{value:g}"
