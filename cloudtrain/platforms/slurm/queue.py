"""The watched jobs of a cluster in Slurm's queue: one ``squeue`` for all, then ``sacct`` for those that left."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.queue import (
    CALL_SECONDS,
    MOST_ABSENCES,
    POLL_SECONDS,
    SharedQueue,
    Snapshot,
    Standing,
)
from cloudtrain.platforms.batch.shell import Answer, Shell
from cloudtrain.platforms.slurm.squeue import (
    MOST_AT_ONCE,
    NO_ACCOUNTING,
    SITE,
    QueueRow,
    has_place,
    is_table,
    order_command,
    parse_order,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
    sacct_command,
    scontrol_command,
    squeue_command,
)
from cloudtrain.platforms.slurm.states import Ending, is_ended
from cloudtrain.runtime.supervisor.submissions import parse_site

ORDER_SECONDS = 300.0
"""How old places in the queue may be."""
NEW_SECONDS = 30.0
"""How old they may be for a job that has no place yet."""
GONE = Ending("")
"""The ending of a job that neither the controller nor the accounting has any longer."""
_NO_COMMAND = (126, 127)
"""Exit codes of a shell for a command that this machine does not have."""
_EXITED = ("COMPLETED", "FAILED")
"""States of jobs that ended by themselves, with an exit code that ``squeue`` does not show."""
MOST_ENDINGS = 5000
FORGET_SECONDS = 3600.0
"""If the last answer is older than this, the cluster may have gained accounting in the meantime."""
UNKNOWN_NUMBER = "Invalid job id specified"
OWN_ERROR = re.compile(r"^(squeue|slurm\w*):? (error|fatal)", re.MULTILINE)
"""An error of ``squeue``, which may exit with code 0. Other lines are from the machine's loader, or a wrapper."""
_NO_ELEMENT = re.compile(r"^Job \S+ not found$", re.MULTILINE)
"""The output of ``scontrol`` for an element of an array that was cancelled while it waited."""


@dataclass(frozen=True)
class SlurmSnapshot(Snapshot):
    """An answer of ``squeue``, and those of other commands."""

    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    places_taken: float = 0.0
    endings: Mapping[str, Ending] = field(default_factory=dict)
    """The endings of jobs that have left the queue, as far as any process queried them."""
    has_accounting: bool = True
    """False once ``sacct`` has reported that there is none."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SlurmSnapshot:
        places = {number: (int(place), int(count)) for number, (place, count) in values["places"].items()}
        endings = {number: Ending(**ending) for number, ending in values["endings"].items()}
        return cls(**{**values, "places": places, "endings": endings})

    def with_endings(self, endings: Mapping[str, Ending]) -> SlurmSnapshot:
        """This snapshot with these endings, and the latest of the known ones."""
        merged = list({**self.endings, **endings}.items())
        return replace(self, endings=dict(merged[-MOST_ENDINGS:]))

    def answered(self, taken: float, asked: float, text: str) -> SlurmSnapshot:
        has_accounting = self.has_accounting or asked - self.taken > FORGET_SECONDS
        return replace(super().answered(taken, asked, text), has_accounting=has_accounting)


class Queue(SharedQueue[QueueRow, SlurmSnapshot]):
    """The jobs of this user in Slurm. Queries the accounting for those that have left.

    Args:
        shell: runs Slurm's commands.
        file: shared by the processes of this user on this machine; None for none.
        cluster: for a Slurm of several clusters; empty for the default one.
        poll_seconds: how old an answer may be.
    """

    product = "Slurm"
    kind = SlurmSnapshot

    def __init__(
        self, shell: Shell, file: Path | None = None, *, cluster: str = "", poll_seconds: float = POLL_SECONDS
    ) -> None:
        super().__init__(shell, file, poll_seconds=poll_seconds)
        self._cluster = cluster
        self._watched: set[str] = set()
        self._looked_up: dict[str, float] = {}
        """By job, the answer of the queue after which the accounting was last queried, and did not list it as alive."""
        self._asked_for: dict[str, float] = {}
        """By job, the answer of the queue after which its ending was last queried."""

    def look(self, number: str, since: float) -> Standing[QueueRow]:
        self._watched.add(number)
        return super().look(number, since)

    def _may_return(self, number: str) -> bool:
        self._ending(number, None)
        return number not in self._snapshot.endings

    def ending(self, number: str) -> Ending | None:
        """How a job that is not alive ended; None if Slurm has no record. Queries once for all jobs that have left."""
        with self._lock:
            return self._ending(number, self._rows.get(number))

    @property
    def has_accounting(self) -> bool:
        return self._snapshot.has_accounting

    @cached_property
    def site(self) -> str:
        """The name of the cluster that answers; empty if that is unknown. Queried once."""
        with contextlib.suppress(PlatformError):
            return parse_site(self._shell.run(SITE, timeout=CALL_SECONDS).out)
        return ""

    def place(self, number: str) -> tuple[int, int] | None:
        """The place of a pending job in its partition, from 1, and the number of jobs that wait there, minutes ago.

        This needs the pending jobs of all users, so it is rarely queried. It counts as a call, and delays the next.
        """
        with self._lock:
            self._refresh()
            row = self._rows.get(number)
            if row is None or not has_place(row):
                return None
            age = time.time() - self._snapshot.places_taken
            if age > (ORDER_SECONDS if number in self._snapshot.places else NEW_SECONDS):
                self._ask_order()
            return self._snapshot.places.get(number)

    def _query(self) -> str:
        answer = self._shell.run(squeue_command(self._cluster), timeout=CALL_SECONDS)
        text = answer.out.decode("utf-8", "replace")
        if answer.code or OWN_ERROR.search(answer.complaint) or not is_table(text):
            raise PlatformError(_complaint(answer))
        return text

    def _parse(self, text: str) -> Mapping[str, QueueRow]:
        return parse_squeue(text)

    def _ask_order(self) -> None:
        with self._file.taken(wait=False) as is_mine:
            taken = time.time()
            known = self._file.read()
            if (
                known and known.places_taken > self._snapshot.places_taken
            ):  # another process has just queried it
                self._snapshot = known
                return
            if not is_mine or self._snapshot.failures:
                return
            try:
                answer = self._shell.run(order_command(self._cluster), timeout=CALL_SECONDS)
            except PlatformError:
                return
            places = parse_order(answer.out.decode("utf-8", "replace"), self._rows)
            last = self._snapshot
            self._snapshot = replace(last, calls=last.calls + 1, places=places, places_taken=taken)
            self._file.write(self._snapshot)

    def _ending(self, number: str, row: QueueRow | None) -> Ending | None:
        """How a job that has left the queue ended. Queries once for all that have left."""
        if self._asked_for.get(number, -1.0) < self._snapshot.taken and number not in self._snapshot.endings:
            self._asked_for[number] = self._snapshot.taken
            with self._file.taken(wait=True):
                self._snapshot = self._file.read() or self._snapshot  # another process may have queried it
                if number not in self._snapshot.endings:
                    has_answered = self._looked_up.get(number, -1.0) >= self._snapshot.taken or self._look_up(
                        number
                    )
                    if number not in self._snapshot.endings and (row is None or row.state in _EXITED):
                        self._look_at_controller(number, is_sure=has_answered)
                    self._file.write(self._snapshot)
        found = self._snapshot.endings.get(number)
        if row and found in (None, GONE):  # the accounting lags behind
            return Ending(
                row.state,
                reason=row.reason,
                nodes=row.nodes,
                ended_at=row.end,
                name=row.name,
                folder=row.folder,
            )
        return None if found == GONE else found

    def _look_up(self, number: str) -> bool:
        """Query the accounting for this job and others that have left, including those that other processes watch.

        Returns true if the accounting has answered without this job, or does not exist.
        """
        if not self._snapshot.has_accounting:
            return True
        left = {other for other, row in self._rows.items() if row.is_ended} | (
            self._watched - self._rows.keys()
        )
        answered = {one for one, taken in self._looked_up.items() if taken >= self._snapshot.taken}
        others = left - {number} - answered - self._snapshot.endings.keys()
        numbers = [number, *sorted(others)][:MOST_AT_ONCE]
        try:
            answer = self._shell.run(sacct_command(numbers, self._cluster), timeout=CALL_SECONDS)
        except PlatformError:
            return False
        if answer.code:
            has_accounting = not any(words in answer.complaint for words in NO_ACCOUNTING)
            self._snapshot = replace(self._snapshot, has_accounting=has_accounting)
            return not has_accounting
        found = parse_sacct(answer.text)
        known = {one: found[one] for one in numbers if one in found and is_ended(found[one].state)}
        not_alive = (one for one in numbers if one in known or one not in found)
        self._looked_up.update(dict.fromkeys(not_alive, self._snapshot.taken))
        self._snapshot = self._snapshot.with_endings(known)
        return number not in found

    def _look_at_controller(self, number: str, *, is_sure: bool) -> None:
        """Query the controller for a job that is not in the queue.

        Args:
            is_sure: whether the accounting agrees. Otherwise, the job is considered ended only after more such answers.
        """
        try:
            answer = self._shell.run(scontrol_command(number, self._cluster), timeout=CALL_SECONDS)
        except PlatformError:
            return
        found = parse_scontrol(answer.text) if answer.code == 0 else None
        is_unknown = UNKNOWN_NUMBER in answer.complaint or _NO_ELEMENT.search(answer.text)
        if found and is_ended(found.state):
            self._snapshot = self._snapshot.with_endings({number: found})
        elif found is None and (is_unknown or answer.code in _NO_COMMAND):
            self._absent[number] = self._absent.get(number, 0) + 1
            is_sure = is_sure and answer.code not in _NO_COMMAND
            if is_sure or self._absent[number] >= MOST_ABSENCES:
                self._snapshot = self._snapshot.with_endings({number: GONE})
        elif found:
            self._absent.pop(number, None)


def _complaint(answer: Answer) -> str:
    """The most specific line of an error, without the name of the program."""
    lines = [line.strip() for line in answer.complaint.splitlines() if line.strip()]
    if not lines:
        return (
            f"squeue exited with code {answer.code}"
            if answer.code
            else "squeue printed no table, or a part of one"
        )
    return lines[-1].removeprefix("squeue: error: ").removeprefix("slurm_load_jobs error: ")
