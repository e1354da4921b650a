"""On which cluster each job of a scheduler is."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from cloudtrain.contract.documents import Fields
from cloudtrain.platforms.common.ticket_files import TicketFiles


@dataclass(frozen=True)
class Ticket:
    """The way to a cluster."""

    login: str = ""
    """The alias of its login node; empty for this machine."""
    folder: str = ""
    """As the nodes see it; empty for the default of this machine."""
    profile: str = ""
    poll_seconds: float = 10.0
    """How old an answer of the scheduler may be."""


class Tickets(TicketFiles[Ticket]):
    """The tickets of all jobs of one platform."""

    def _parse(self, given: Fields) -> Ticket:
        return Ticket(
            given.text("login", ""),
            given.text("folder", ""),
            given.text("profile", ""),
            given.number("poll_seconds", 10.0, least=1),
        )

    def _place(self, ticket: Ticket) -> Hashable:
        return ticket.login, ticket.folder
