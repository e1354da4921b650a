"""In which cluster, in which namespace and as which kind of object each job runs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from cloudtrain.contract.documents import Fields
from cloudtrain.platforms.common.ticket_files import TicketFiles


@dataclass(frozen=True)
class Ticket:
    """The way to a job's main object."""

    context: str = ""
    """The context of the kubeconfig file; empty for the current one, and inside a cluster."""
    namespace: str = ""
    """Empty for the context's own."""
    rendering: str = "job"
    """The kind of the main object: see `KubernetesOptions.rendering`."""
    uid: str = ""
    """Of the main object; empty before it was created."""


class Tickets(TicketFiles[Ticket]):
    """The tickets of all jobs."""

    def __init__(self) -> None:
        super().__init__("kubernetes")

    def _parse(self, given: Fields) -> Ticket:
        return Ticket(
            given.text("context", ""),
            given.text("namespace", ""),
            given.text("rendering", "job"),
            given.text("uid", ""),
        )

    def _place(self, ticket: Ticket) -> Hashable:
        return ticket.context, ticket.namespace
