"""The tickets, which record where the client's jobs are: one small file for each job, without secrets."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

LARGEST = 1 << 16

T = TypeVar("T")


class TicketFiles(ABC, Generic[T]):
    """The tickets, which are dataclasses, of all jobs of one platform."""

    def __init__(self, platform: str) -> None:
        self._platform = platform

    @abstractmethod
    def _parse(self, given: Fields) -> T:
        """Raises ValueError."""

    @abstractmethod
    def _place(self, ticket: T) -> Hashable:
        """The same value for all jobs in one place."""

    def write(self, job_name: str, ticket: T) -> None:
        values: Any = ticket
        write_file(self._path(job_name), json.dumps(asdict(values)).encode())

    def read(self, job_name: str) -> T | None:
        """None if this client has not submitted the job, or the ticket is damaged."""
        with contextlib.suppress(OSError, ValueError):
            return self._parse(Fields(parse_json(read_regular(self._path(job_name), LARGEST))))
        return None

    def remove(self, job_name: str) -> None:
        self._path(job_name).unlink(missing_ok=True)

    def restore(self, job_name: str, ticket: T | None) -> None:
        """Restore the ticket that the job had before; None if it had none."""
        if ticket is None:
            self.remove(job_name)
        else:
            self.write(job_name, ticket)

    def all(self) -> Iterator[T]:
        """One ticket for each place that has jobs."""
        seen = set()
        for path in sorted(self._home.glob("*.json")):
            ticket = self.read(path.stem)
            if ticket and self._place(ticket) not in seen:
                seen.add(self._place(ticket))
                yield ticket

    @property
    def _home(self) -> Path:
        return state_home() / "clusters" / self._platform

    def _path(self, job_name: str) -> Path:
        return self._home / f"{job_name}.json"
