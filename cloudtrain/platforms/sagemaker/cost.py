"""The cost of a training job, from its billable time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.contract.documents import parse_json
from cloudtrain.contract.settings import PREFIX
from cloudtrain.cost.known import known_prices
from cloudtrain.cost.price_list import hourly_price
from cloudtrain.cost.prices import Price, Where, find_price, sagemaker_row
from cloudtrain.cost.so_far import Cost, cost_of as cost_of_terms
from cloudtrain.platforms.sagemaker.training_job import instance_groups, job_status
from cloudtrain.runtime.supervisor.caps import HOUR

COST_TERMS = f"{PREFIX}COST_TERMS"
"""The variable with a job's price, and its prices on later days: see `contract.Settings.cost_terms`."""


def known_price(instance_type: str, aws: Aws) -> Price | None:
    """The hourly price of a training instance, from the tables or else from the Price List."""
    price = find_price(known_prices(), Where("sagemaker", region=aws.region, node_type=instance_type))
    if price is not None:
        return price
    dollars = hourly_price(instance_type, aws)
    date = time.strftime("%Y-%m-%d")
    return (
        dollars
        and sagemaker_row(aws.region, instance_type, dollars, source="AWS Price List", date=date).price
    ) or None


def cost_of(answer: Mapping[str, Any], price: Callable[[str], Price | None]) -> Cost | None:
    """The cost so far of a job's instances. With spot instances, the billable time is known only at the end.

    Args:
        answer: SageMaker's response to DescribeTrainingJob.
        price: returns the price of an instance type, for a job whose price was not frozen when it was submitted.
    """
    billable = _billable(answer)
    if billable is None:
        return None
    started = answer.get("TrainingStartTime")
    began = None if started is None else float(started.timestamp())
    frozen = cost_of_terms({"cost_terms": _frozen(answer)}, billable, began)
    if frozen:
        return frozen
    total, prices = 0.0, []
    for group in instance_groups(answer["ResourceConfig"]):
        found = price(group["InstanceType"])
        hourly = found.per_hour(group["InstanceCount"]) if found else None
        if found is None or hourly is None:
            return None
        total += hourly * billable / HOUR
        prices.append(found)
    if len({one.currency for one in prices}) != 1:
        return None
    sources = dict.fromkeys(one.source for one in prices if one.source)
    return Cost(total, prices[0].currency, "; ".join(sources), min(one.date for one in prices))


def _billable(answer: Mapping[str, Any]) -> float | None:
    """The billed seconds of each instance so far; None while a job runs on spot instances, because they are unknown."""
    if job_status(answer).is_final:
        found: float | None = answer.get("BillableTimeInSeconds")
        return found
    started = answer.get("TrainingStartTime")
    if started is None or answer.get("EnableManagedSpotTraining"):
        return None
    return max(0.0, time.time() - float(started.timestamp()))


def _frozen(answer: Mapping[str, Any]) -> Any:
    """The job's cost terms, from its variable. They are unchecked: a user may have set the variable."""
    with contextlib.suppress(ValueError):
        return parse_json(answer.get("Environment", {}).get(COST_TERMS, "{}"))
    return {}
