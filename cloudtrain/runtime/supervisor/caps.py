"""The limits of a job's time, its cost at the price in its request, and how these are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.contract.documents import is_number

HOUR = 3600.0


def limit_of(body: Mapping[str, Any]) -> tuple[float, str]:
    """The seconds that a job may run, all attempts together, and the reason for its end then."""
    terms, limits = body.get("cost_terms") or {}, []
    if body.get("max_run"):
        limits.append((float(body["max_run"]), f"max_run of {body['max_run']} s is over"))
    if terms.get("cap"):
        limits.append((float(terms["cap_seconds"]), f"the {terms['cap']} is reached"))
    return min(limits, default=(float("inf"), ""))


def price_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the event of an attempt that say what it costs; none if that is not known."""
    terms = body.get("cost_terms") or {}
    names = ("per_hour", "currency", "source", "date")
    return {"price": {name: terms.get(name, "") for name in names}} if hourly(terms) else {}


def hourly(terms: Any) -> float | None:
    """The price of an hour of all nodes in the terms of a request, which may be damaged; None if it is not known."""
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
    """The cost of ``seconds`` of all nodes, and its currency; None if the price is not known."""
    terms: Any = body.get("cost_terms")
    price = hourly(terms)
    return None if price is None else (price * seconds / HOUR, str(terms.get("currency") or "USD"))


def spent(body: Mapping[str, Any], seconds: float) -> str:
    """The cost of a job that has run for ``seconds``, to append to the reason for its end at its cap."""
    terms = body.get("cost_terms") or {}
    if not terms.get("cap"):
        return ""
    cost, over = amount(body, seconds), max(0.0, seconds - terms["cap_seconds"])
    parts = [f"it cost {cost[0]:.4g} {cost[1]}"] if cost else []
    if terms.get("gpus"):
        parts.append(f"{seconds * terms['gpus'] / HOUR:.4g} GPU-hours")
    return f": {', '.join([*parts, f'{over:.1f} s after the cap'])}" if parts else ""
