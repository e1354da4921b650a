"""The tables of prices that are available to this user: the config file, AWS's Price List, and this package."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct

from cloudtrain.config import config_path, read_section
from cloudtrain.cost.price_list import read_copy
from cloudtrain.cost.prices import (
    LEAST,
    MOST,
    UNITS,
    Price,
    PriceRow,
    Where,
    in_force,
    is_price,
    sagemaker_row,
)
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.supervisor.caps import day_of

PLATFORMS = (
    "local", "container", "hosts", "slurm", "pbs", "torque", "cobalt", "lsf", "kubernetes", "sagemaker",
)  # fmt: skip
"""The platforms of this package. Other packages may add more."""
GROUP = "cloudtrain.platforms"
"""The group of entry points with which installed packages add platforms."""
_EXAMPLE = "For example: prices: {currency: EUR, rows: [{platform: slurm, partition: a100, gpu_hour: 2.1}]}"


class _Row(Struct, forbid_unknown_fields=True):
    platform: str
    region: str = ""
    cluster: str = ""
    partition: str = ""
    node_type: str = ""
    since: str = ""
    node_hour: float | None = None
    gpu_hour: float | None = None
    cpu_hour: float | None = None


class _Table(Struct, forbid_unknown_fields=True):
    rows: list[_Row]
    currency: str = "USD"
    date: str = ""
    source: str = ""


def known_prices() -> list[Sequence[PriceRow]]:
    """All tables, in the order in which `find_price` searches them. Makes no request.

    Raises InvalidJob if the config file, or its table, is not valid.
    """
    return [config_prices(), read_copy(), sagemaker_prices()]


def today() -> str:
    """The current day in UTC, in ISO 8601 format."""
    return day_of(time.time())


def config_prices(day: str = "") -> list[PriceRow]:
    """The rows of `config_rows` that apply on ``day``, by default today. Raises InvalidJob."""
    return in_force(config_rows(), day or today())


def config_rows() -> list[PriceRow]:
    """The section ``prices`` of the config file. Raises InvalidJob, with the row and the key."""
    from cloudtrain.spec import convert
    from cloudtrain.spec.conversion import LONGEST_SHOWN

    section = read_section("prices")
    if not section:
        return []
    where = f"{config_path()}: prices"
    table = convert(section, _Table, where)
    if not re.fullmatch("[A-Z]{3}", table.currency):
        raise InvalidJob(
            f"{where}.currency: expected three capital letters, got {table.currency!r}", hint=_EXAMPLE
        )
    if not _is_date(table.date):
        raise InvalidJob(
            f"{where}.date: expected a day or a month, got {table.date!r}",
            hint="For example: date: 2026-10-01",
        )
    rows: dict[tuple[Where, str], PriceRow] = {}
    for number, row in enumerate(table.rows):
        at = f"{where}.rows[{number}]"
        if row.platform not in PLATFORMS and row.platform not in (names := _installed()):
            raise InvalidJob(
                f"{at}.platform: unknown platform {row.platform[:LONGEST_SHOWN]!r}",
                hint=f"Known: {', '.join(sorted({*PLATFORMS, *names}))}.",
            )
        place = Where(row.platform, row.region, row.cluster, row.partition, row.node_type)
        if row.since and not (len(row.since) == len("2026-10-01") and _is_date(row.since)):
            raise InvalidJob(
                f"{at}.since: expected a day, got {row.since!r}", hint="For example: since: 2027-01-01"
            )
        if (place, row.since) in rows:
            raise InvalidJob(
                f"{at}: has the same place as a row above",
                hint="Remove one of them, or say since which day it applies: since: 2027-01-01.",
            )
        rows[place, row.since] = PriceRow(place, _price_of(row, table, at), row.since)
    return list(rows.values())


def _installed() -> set[str]:
    """The names of the platforms of installed packages."""
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group=GROUP)}


def currency_of(platform: str) -> str:
    """The currency of the costs of jobs on ``platform``: that of your table if it has rows for it, else US dollars."""
    return next((row.price.currency for row in config_prices() if row.where.platform == platform), "USD")


def _price_of(row: _Row, table: _Table, at: str) -> Price:
    given = [(unit, amount) for unit in UNITS if (amount := getattr(row, unit)) is not None]
    if len(given) != 1:
        got = " and ".join(unit for unit, _ in given) or "none"
        raise InvalidJob(f"{at}: expected one of {', '.join(UNITS)}, got {got}", hint=_EXAMPLE)
    [(unit, amount)] = given
    if not is_price(amount):
        raise InvalidJob(
            f"{at}.{unit}: expected a number from {LEAST:g} to {MOST:g}, got {amount:g}",
            hint="Remove the row if the price is not known: its jobs then have no cost.",
        )
    return Price(amount, unit, table.currency, table.source or "the config file", table.date)


def _is_date(text: str) -> bool:
    """Whether ``text`` is empty, or a day or month in ISO 8601 format, except for week dates such as 2026-W40-1."""
    day = text if len(text) == len("2026-10-01") else f"{text}-01"
    try:
        return date.fromisoformat(day).isoformat() == day
    except ValueError:
        return not text


def sagemaker_prices() -> list[PriceRow]:
    """The table of this package: on-demand prices of SageMaker training instances, each with its source and date."""
    text = Path(__file__).with_name("sagemaker_prices.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return [
        sagemaker_row(region, kind, dollars, **document["sources"][source])
        for source, regions in document["prices"].items()
        for region, prices in regions.items()
        for kind, dollars in prices.items()
    ]
