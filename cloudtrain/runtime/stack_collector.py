"""Collects the stacks of all ranks from all hosts, for the leader, and reports them as events."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._system.retries import again
from cloudtrain.contract.documents import Fields, is_count
from cloudtrain.observe import EventLog
from cloudtrain.observe.events import Event, to_line
from cloudtrain.observe.inquiry import InGroup, groups_of
from cloudtrain.observe.stacks import (
    GROUP,
    MOST_GROUPS,
    MOST_NAMES,
    TAKEN,
    StackGroup,
    show_ranks,
)
from cloudtrain.runtime.diagnose.collectives import Records, with_records
from cloudtrain.runtime.diagnose.hangs import Place

SECONDS, NATIVE_SECONDS, SILENT_SECONDS, HANG_SECONDS = 5.0, 60.0, 20.0, 2.0
"""How long a host may take for its stacks. Native frames need the symbols of large libraries. The ranks of a silent job
may be slow to respond."""
HANG = "before ranks that hang were ended"
SILENT = "because no rank had shown a sign of life"
KILLED = "before ranks that did not end within the grace were killed"

SPARE_SECONDS = 3.0
"""How much longer than the hosts' time the leader waits for their answers."""
WRITE_SECONDS = 2.0
"""How long the leader waits at its end for a disk that hangs."""

Message = dict[str, Any]
_FIELDS = ("process", "state", "where", "stack")
Places = dict[int, tuple[Place, str]]
"""The place of each rank, and its stack as text."""


@dataclass
class _Members:
    """The ranks and hosts of a group."""

    kind: int
    """See `hangs.Place`."""
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


class StackCollector:
    """Handles one request for stacks at a time.

    Args:
        hosts: all hosts of the job.
        events: the events to which the result is added.
        clock: monotonic, in seconds.
        judge: returns further events about silent ranks, from their places.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        events: EventLog,
        clock: Callable[[], float] = time.monotonic,
        judge: Callable[[Places], Sequence[Event]] = lambda places: (),
    ) -> None:
        self._judge = judge
        self._order = {host: index for index, host in enumerate(hosts)}
        self._events = events
        self._clock = clock
        self._id = ""
        """The request's identity; empty if nothing is being collected."""
        self._native = self._wants_native = False
        self._why = ""
        self._began = self._deadline = 0.0
        self._missing: list[str] = []
        self._groups: dict[tuple[str, ...], _Members] = {}
        """The groups by the values of `_FIELDS`."""
        self._records: dict[int, Mapping[str, InGroup]] = {}
        self._writer: threading.Thread | None = None

    @property
    def records(self) -> Records:
        """The flight records of the ranks that have sent one since the last request."""
        return self._records

    def request_for_hang(self) -> Message:
        """The message for a request with little time, before ranks that hang are ended. Finishes any other request."""
        self.finish()
        self._wants_native = False
        return {**self._begin(HANG_SECONDS, why=HANG), "hangs": True, "collectives": True}

    def request(self, *, native: bool = False, why: str = "") -> Message | None:
        """The message to all hosts; None if another request is in progress, whose result serves both."""
        if self._id:
            self._wants_native |= native and not self._native
            return None
        seconds = NATIVE_SECONDS if native else SILENT_SECONDS if why == SILENT else SECONDS
        return self._begin(seconds, native=native, why=why)

    def _begin(self, seconds: float, *, native: bool = False, why: str = "") -> Message:
        self._id, self._native, self._why = os.urandom(6).hex(), native, why
        self._began = self._clock()
        self._deadline = self._began + seconds + SPARE_SECONDS
        self._missing, self._groups, self._records = list(self._order), {}, {}
        return {
            "type": "dump",
            "id": self._id,
            "native": native,
            "seconds": seconds,
            "hangs": False,
            "collectives": why == SILENT,
        }

    def add(self, host: str, message: Mapping[str, Any]) -> None:
        """Add the answer of a host. Raises ValueError or TypeError if it is invalid."""
        fields = Fields(message)
        if fields.text("id", "") != self._id or host not in self._missing:
            return
        found = [
            (tuple(map(group.text, _FIELDS)), group.integer("kind"), group.items("ranks"))
            for group in fields.objects("groups", ())
        ]
        if not all(ranks and all(map(is_count, ranks)) for _, _, ranks in found):
            raise ValueError("the ranks of a group are not numbers")
        records = {rank: groups_of(groups) for rank, groups in fields.items("collectives", ())}
        if not all(map(is_count, records)):
            raise ValueError("the ranks of flight records are not numbers")
        self._missing.remove(host)
        self._records.update(records)
        for key, kind, ranks in found:
            members = self._groups.setdefault(key, _Members(kind))
            members.ranks += ranks
            members.hosts.append(host)

    def look(self) -> Message | None:
        """Report the result if all hosts have answered or the time is over. Returns the next message to the hosts."""
        if not self._id or (self._missing and self._clock() < self._deadline):
            return None
        self.finish()
        wants, self._wants_native = self._wants_native, False
        return self.request(native=True) if wants else None

    def finish(self) -> None:
        """Report the answers so far in the background: see `wait`. Does nothing if nothing is being collected."""
        if not self._id:
            return
        keys = sorted(self._groups, key=self._place_in_order)
        events = [
            self._events.record(GROUP, id=self._id, **self._group(key).to_dict())
            for key in keys[:MOST_GROUPS]
        ]
        taken = self._events.record(
            TAKEN,
            id=self._id,
            ranks=sum(len(found.ranks) for (process, *_), found in self._groups.items() if not process),
            more=len(keys[MOST_GROUPS:]),
            silent=self._missing[:MOST_NAMES],
            native=self._native,
            why=self._why,
            seconds=round(self._clock() - self._began, 1),
        )
        self._id = ""
        judged = self._judge(self._places()) if self._why == SILENT else ()
        self.write(b"".join(map(to_line, (*events, taken, *judged))))

    def wait(self) -> None:
        """Wait until the last result is written, unless the disk hangs."""
        if self._writer:
            self._writer.join(WRITE_SECONDS)

    def _places(self) -> Places:
        found = {
            rank: (Place(members.kind, where or state), stack)
            for (process, state, where, stack), members in self._groups.items()
            for rank in members.ranks
            if not process
        }
        places = with_records({rank: place for rank, (place, _) in found.items()}, self._records)
        return {rank: (place, found[rank][1]) for rank, place in places.items()}

    def write(self, lines: bytes) -> None:
        """Append the lines in another thread, because a disk that hangs or fails must not delay the leader."""

        def write() -> None:
            with contextlib.suppress(OSError):
                again(lambda: self._events.append(lines))

        if (
            self._writer is None or not self._writer.is_alive()
        ):  # else the disk hangs, and this result is lost
            self._writer = threading.Thread(target=write, name="stacks-writer", daemon=True)
            self._writer.start()

    def _place_in_order(self, key: tuple[str, ...]) -> tuple[Any, ...]:
        """The sort key of a group: ranks before their children, small groups first, waits for other ranks last."""
        process, state, *_ = key
        members = self._groups[key]
        return bool(process), len(members.ranks), not state, members.kind, min(members.ranks)

    def _group(self, key: tuple[str, ...]) -> StackGroup:
        process, state, where, stack = key
        ranks = self._groups[key].ranks
        hosts = tuple(sorted(self._groups[key].hosts, key=self._order.__getitem__)[:MOST_NAMES])
        return StackGroup(show_ranks(ranks), len(ranks), where, stack, state, process, hosts)
