"""The limits of a job's time, its cost at the price of each attempt, and how both are displayed.

The terms of a job are those of `cloudtrain.spec.CostTerms`. An attempt that starts at another price has its
own: see `terms_of_attempt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import gmtime, strftime
from typing import Any

from cloudtrain.contract.documents import is_number

HOUR = 3600.0
LARGEST_RESERVE = 0.1
"""The share of the time until a cap that is kept for the end of the job, if its ``stop_grace`` is longer."""
PRICE = ("per_hour", "source", "date")
"""The fields of a price that an attempt takes from the table at its start."""


def limit_of(body: Mapping[str, Any]) -> tuple[float, str]:
    """The seconds that all attempts of a job together may run, and the reason to report when they are used up."""
    terms, limits = body.get("cost_terms") or {}, []
    if body.get("max_run"):
        limits.append((float(body["max_run"]), f"max_run of {body['max_run']} s is over"))
    if terms.get("cap"):
        limits.append((stop_seconds(terms), f"the {terms['cap']} is reached"))
    return min(limits, default=(float("inf"), ""))


def stop_seconds(terms: Mapping[str, Any]) -> float:
    """The number of seconds after which the job is stopped, which is before the cap so that it has time to save."""
    return float(terms["cap_seconds"] - terms.get("reserve", 0.0))


def price_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an attempt's event that give its price; none if the price is unknown."""
    terms = body.get("cost_terms") or {}
    names = ("per_hour", "currency", "source", "date")
    return {"price": {name: terms.get(name, "") for name in names}} if hourly(terms) else {}


def terms_of_attempt(terms: Any, table: Any, seconds: float, day: str) -> Any:
    """The terms of an attempt that starts on ``day``, after the nodes have been held for ``seconds``.

    Earlier attempts keep their prices: ``paid`` is their cost, and ``paid_for`` their seconds. The cap applies to the
    rest. The price does not change if the table has none, or has one in another currency.

    Args:
        terms: those of the previous attempt, or of the job.
        table: the terms according to the current table; equal to ``terms`` if the table cannot be read.
    """
    spent_before = amount({"cost_terms": terms}, seconds)
    price = price_on(table, day)
    if spent_before is None or price is None or spent_before[1] != (table.get("currency") or "USD"):
        return terms
    changed = {**terms, **price, "later": table.get("later", ())}
    if changed["per_hour"] == terms["per_hour"]:
        return terms
    changed.update(paid=spent_before[0], paid_for=seconds)
    return {**changed, **cap_of(changed)}


def price_on(terms: Any, day: str) -> dict[str, Any] | None:
    """The price in ``terms`` of an attempt that starts on ``day``; None if it is unknown."""
    if hourly(terms) is None:
        return None
    later: Any = terms.get("later")
    known = [one for one in later if hourly(one)] if isinstance(later, (list, tuple)) else []
    begun = [terms, *(one for one in known if str(one.get("since")) <= day)]
    last = max(begun, key=lambda one: str(one.get("since", "")))
    return {name: last.get(name, terms.get(name, "")) for name in PRICE}


def at_start(terms: Any, time: float) -> Any:
    """``terms`` of a job that started at ``time``, in seconds since the epoch, and has one price for all attempts."""
    return {**terms, **(price_on(terms, day_of(time)) or {})} if isinstance(terms, Mapping) else terms


def day_of(time: float) -> str:
    """The day in UTC: prices change at its beginning, on all machines."""
    return strftime("%Y-%m-%d", gmtime(time))


def cap_of(terms: Mapping[str, Any]) -> dict[str, Any]:
    """The cap of ``terms`` that is reached first, and the seconds from the start of the job until then; empty if none.

    For ``max_cost``, the amount in ``paid`` is used up, and the rest is spent at the price of the terms. For
    ``max_gpu_hours``, ``gpus`` GPUs are in use.
    """
    limits = []
    if terms.get("max_cost"):
        left = max(0.0, terms["max_cost"] - terms.get("paid", 0.0)) / terms["per_hour"]
        currency = terms.get("currency") or "USD"
        limits.append(
            (terms.get("paid_for", 0.0) + left * HOUR, f"max_cost of {terms['max_cost']:g} {currency}")
        )
    if terms.get("max_gpu_hours"):
        hours = terms["max_gpu_hours"]
        limits.append((hours / terms["gpus"] * HOUR, f"max_gpu_hours of {hours:g}"))
    if not limits:
        return {}
    seconds, cap = min(limits)
    left = max(0.0, seconds - terms.get("paid_for", 0.0))
    reserve = min(terms.get("reserve", 0.0), LARGEST_RESERVE * left)
    return {"cap": cap, "cap_seconds": round(seconds, 3), "reserve": round(reserve, 3)}


def hourly(terms: Any) -> float | None:
    """The price of an hour of all nodes in the terms of a request, which may be damaged; None if it is unknown."""
    found: Any = terms.get("per_hour") if isinstance(terms, Mapping) else None
    return float(found) if is_number(found) and found > 0 else None


def money(amount: float, currency: str) -> str:
    """
    >>> money(1234.5, "USD"), money(0.0021, "EUR")
    ('$1,234.50', '0.0021 EUR')
    """
    digits = f"{amount:,.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"
    return f"${digits}" if currency == "USD" else f"{digits} {currency}"


def amount(body: Mapping[str, Any], seconds: float) -> tuple[float, str] | None:
    """The cost of ``seconds`` of all nodes, and its currency; None if the price is unknown."""
    terms: Any = body.get("cost_terms")
    price = hourly(terms)
    if price is None:
        return None
    paid, paid_for = (value if is_number(value := terms.get(name)) else 0.0 for name in ("paid", "paid_for"))
    return paid + price * max(0.0, seconds - paid_for) / HOUR, str(terms.get("currency") or "USD")


def spent(body: Mapping[str, Any], seconds: float) -> str:
    """The cost of a job that has run for ``seconds``, to append to the reason for its end at its cap."""
    terms = body.get("cost_terms") or {}
    if not terms.get("cap"):
        return ""
    cost, over = amount(body, seconds), max(0.0, seconds - terms["cap_seconds"])
    parts = [f"it cost {cost[0]:.4g} {cost[1]}"] if cost else []
    if terms.get("gpus"):
        parts.append(f"{seconds * terms['gpus'] / HOUR:.4g} GPU-hours")
    if parts and over >= 0.1:
        parts.append(f"{over:.1f} s after the cap")
    return f": {', '.join(parts)}" if parts else ""
