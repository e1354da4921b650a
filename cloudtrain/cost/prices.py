"""Prices as data, and pure functions that find the price for a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cloudtrain.contract.documents import is_number

Unit = Literal["node_hour", "gpu_hour", "cpu_hour"]
UNITS: tuple[Unit, ...] = ("node_hour", "gpu_hour", "cpu_hour")

LEAST, MOST = 1e-6, 1e9
"""The range of plausible prices per hour, in any currency. Others are rejected as mistakes."""
SAGEMAKER_SPOT = 0.1
"""The lowest price of spot instances as a share of the on-demand price, "up to 90 %" less. The highest share is 1.

https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html
"""


def is_price(amount: object) -> bool:
    """Whether ``amount`` can be the price of an hour: a number from `LEAST` to `MOST`."""
    return is_number(amount) and LEAST <= amount <= MOST  # type: ignore[operator]


@dataclass(frozen=True)
class Price:
    """A price and its source.

    Attributes:
        amount: the amount in ``currency`` per ``unit``; see `is_price`.
        currency: the ISO 4217 code of the currency.
        source: the source to cite.
        date: the day or month of the source, in ISO 8601 format; empty if unknown.
        spot: the lowest and the highest price of spot capacity per unit; None if there is no spot capacity.
    """

    amount: float
    unit: Unit
    currency: str = "USD"
    source: str = ""
    date: str = ""
    spot: tuple[float, float] | None = None

    def per_hour(self, nodes: int, gpus: int | None = None, cpus: int | None = None) -> float | None:
        """The price per hour of ``nodes`` nodes, which have ``gpus`` GPUs and ``cpus`` CPU cores in total.

        None if the number for the unit of the price is unknown or 0.
        """
        count = {"node_hour": nodes, "gpu_hour": gpus, "cpu_hour": cpus}[self.unit]
        return self.amount * count if count else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Where:
    """Where a job runs, as far as it is known, or where a `PriceRow` applies; there, an empty field matches any value.

    Attributes:
        platform: the name of the platform.
        region: the AWS region.
        cluster: a Slurm profile, or a Kubernetes context.
        partition: a Slurm partition, a PBS or LSF queue, or a Kubernetes namespace.
        node_type: an instance type, or the user's name for a kind of nodes.
    """

    platform: str
    region: str = ""
    cluster: str = ""
    partition: str = ""
    node_type: str = ""

    def covers(self, place: Where) -> bool:
        """Whether a price for this place applies to a job at ``place``."""
        ours, theirs = asdict(self), asdict(place)
        return all(not value or value == theirs[name] for name, value in ours.items())


@dataclass(frozen=True)
class PriceRow:
    """A row of a table of prices.

    Attributes:
        where: the place to which the row applies.
        price: the price there.
        since: the first day on which it applies, in ISO 8601 format; empty if it has always applied.
    """

    where: Where
    price: Price
    since: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.where), **self.price.to_dict(), "since": self.since}


def in_force(rows: Iterable[PriceRow], day: str) -> list[PriceRow]:
    """The rows that apply on ``day``: for each place, the latest that has begun."""
    found: dict[Where, PriceRow] = {}
    for row in sorted(rows, key=lambda row: row.since):
        if row.since <= day:
            found[row.where] = row
    return list(found.values())


def find_price(tables: Iterable[Sequence[PriceRow]], place: Where) -> Price | None:
    """The price that applies at ``place``; None if it is unknown. Nothing is guessed from another place.

    Args:
        tables: tables in order of precedence: the first that has a price for ``place`` is used. In it, a row with a
            node type takes precedence over one with a partition, and that over one with a cluster or region.
        place: where the job runs.
    """
    for table in tables:
        rows = [row for row in table if row.where.covers(place)]
        if rows:
            return max(rows, key=lambda row: _precision(row.where)).price
    return None


def _precision(where: Where) -> tuple[bool, ...]:
    return bool(where.node_type), bool(where.partition), bool(where.cluster), bool(where.region)


def sagemaker_row(region: str, instance_type: str, dollars: float, *, source: str, date: str) -> PriceRow:
    """A row with an on-demand price of SageMaker training, in US dollars per instance hour."""
    spot = (dollars * SAGEMAKER_SPOT, dollars)
    place = Where("sagemaker", region=region, node_type=instance_type)
    return PriceRow(place, Price(dollars, "node_hour", "USD", source, date, spot))
