"""The cost of a job, so far or at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudtrain.runtime.supervisor.caps import amount, at_start, money


@dataclass(frozen=True)
class Cost:
    """The cost of all attempts of a job, including failed ones, each at the price of its start.

    Attributes:
        amount: the amount in ``currency``.
        currency: the ISO 4217 code of the currency.
        source: the source of the price; empty if it is not known.
        date: the date of the source; empty if it is not known.
        cap: the cap of the job, for display; empty if it has none.
    """

    amount: float
    currency: str = "USD"
    source: str = ""
    date: str = ""
    cap: str = ""

    def __str__(self) -> str:
        return money(self.amount, self.currency)

    def line(self) -> str:
        """The cost as text for people, with the source of the price and the cap."""
        price = " of ".join(filter(None, (self.source, self.date)))
        notes = [self.cap, f"price: {price}" if price else ""]
        return f"about {self}" + "".join(f"; {note}" for note in notes if note)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def cost_of(body: Mapping[str, Any], seconds: float, started_at: float | None = None) -> Cost | None:
    """The cost of a job after all of its nodes have run for ``seconds``; None if it is unknown.

    Args:
        body: the body of the job's request, which contains its ``cost_terms``.
        seconds: the time for which its nodes have run.
        started_at: the start of a job that has one price for all attempts; None if the terms are those of the attempt.
    """
    if started_at is not None:
        body = {**body, "cost_terms": at_start(body.get("cost_terms"), started_at)}
    found = amount(body, seconds)
    if found is None:
        return None
    terms = body["cost_terms"]
    return Cost(*found, *(str(terms.get(name, "")) for name in ("source", "date", "cap")))
