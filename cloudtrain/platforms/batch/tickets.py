"""On which cluster each job is, as the client remembers it: one small file for each job, without secrets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

LARGEST = 1 << 16


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


class Tickets:
    """The tickets of all jobs of one platform."""

    def __init__(self, platform: str) -> None:
        self._platform = platform

    def write(self, job_name: str, ticket: Ticket) -> None:
        write_file(self._path(job_name), json.dumps(asdict(ticket)).encode())

    def read(self, job_name: str) -> Ticket | None:
        """None if this client has not submitted the job, or the ticket is damaged."""
        with contextlib.suppress(OSError, ValueError):
            given = Fields(parse_json(read_regular(self._path(job_name), LARGEST)))
            return Ticket(
                given.text("login", ""),
                given.text("folder", ""),
                given.text("profile", ""),
                given.number("poll_seconds", 10.0, least=1),
            )
        return None

    def remove(self, job_name: str) -> None:
        self._path(job_name).unlink(missing_ok=True)

    def all(self) -> Iterator[Ticket]:
        """The clusters of all jobs, each once."""
        seen = set()
        for path in sorted(self._home.glob("*.json")):
            ticket = self.read(path.stem)
            if ticket and (ticket.login, ticket.folder) not in seen:
                seen.add((ticket.login, ticket.folder))
                yield ticket

    @property
    def _home(self) -> Path:
        return state_home() / "clusters" / self._platform

    def _path(self, job_name: str) -> Path:
        return self._home / f"{job_name}.json"
