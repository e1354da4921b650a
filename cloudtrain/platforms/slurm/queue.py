"""The watched jobs of a cluster in Slurm's queue: one ``squeue`` for all, then ``sacct`` for those that left.

The answer is kept for some seconds, in this process and in a file that all processes of this user share: ten commands
that wait make as many calls as one. Where Slurm does not answer, the jobs are as they were: unknown is not ended.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.shell import Answer, Shell
from cloudtrain.platforms.slurm.accounting import (
    NO_ACCOUNTING,
    parse_sacct,
    parse_scontrol,
    sacct_command,
    scontrol_command,
)
from cloudtrain.platforms.slurm.snapshot import Snapshot, SnapshotFile
from cloudtrain.platforms.slurm.squeue import (
    QueueRow,
    has_place,
    order_command,
    parse_order,
    parse_squeue,
    squeue_command,
)
from cloudtrain.platforms.slurm.states import Ending, is_ended
from cloudtrain.storage import state_home

POLL_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 60.0
ORDER_SECONDS = 300.0
"""How old places in the queue may be."""
NEW_SECONDS = 30.0
"""How old they may be for a job that is not among them."""
SILENT_SECONDS = 30.0
"""How long Slurm may be silent before users see it: a controller that restarts needs less."""
CALL_SECONDS = 60.0
MOST_ABSENCES = 6
"""After as many answers, a job that is not in the queue has ended: the accounting has missed its end."""
GONE = Ending("")
"""How a job ended that neither the controller nor the accounting knows any more."""
_EXITED = ("COMPLETED", "FAILED")
"""States of jobs that ended by themselves, with an exit code that ``squeue`` does not show."""
SKEW_SECONDS = 5.0
"""How far the clocks of this machine and the cluster may differ."""
UNKNOWN_NUMBER = "Invalid job id specified"


@dataclass(frozen=True)
class Standing:
    """A job in Slurm: whether it lives, and how it ended."""

    is_alive: bool
    """Whether the job is in the queue, or may be: false only if Slurm said that it has ended or does not know it."""
    row: QueueRow | None = None
    taken: float = 0.0
    """When Slurm was asked, in seconds since the epoch; 0 if it never answered."""


class Queue:
    """The jobs of this user in Slurm.

    Args:
        shell: runs Slurm's commands.
        file: shared by the processes of this user on this machine; None for none.
        cluster: for a Slurm of several clusters; empty for the default one.
        poll_seconds: how old an answer may be.
    """

    def __init__(
        self, shell: Shell, file: Path | None = None, *, cluster: str = "", poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._shell = shell
        self._file = SnapshotFile(file)
        self._cluster = cluster
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._snapshot = Snapshot()
        self._rows: Mapping[str, QueueRow] = {}
        self._parsed_of = -1.0
        self._expired_at = 0.0
        self._watched: set[str] = set()
        self._looked_up: dict[str, float] = {}
        """The answer of the queue after which the accounting was last asked for a job, alone or with others."""
        self._asked_for: dict[str, float] = {}
        """The answer of the queue after which the ending of this job was last asked for."""
        self._absent: dict[str, int] = {}
        """In how many answers a job was not in the queue that the accounting takes for alive."""

    def look(self, number: str, since: float) -> Standing:
        """Find a job in Slurm. Asks Slurm only if the last answer is too old.

        Args:
            since: when the job was submitted, in seconds since the epoch.
        """
        with self._lock:
            self._watched.add(number)
            if self._snapshot.asked < since <= time.time():
                self._expired_at = max(self._expired_at, since)  # it was submitted after the last answer
            taken = self._refresh()
            row = self._rows.get(number)
            if row and not row.is_ended:
                return Standing(True, row, taken=taken)
            if row is None and taken < since:
                return Standing(True)  # perhaps it was not in the queue yet
            if self._snapshot.failures and row is None:
                return Standing(True)  # Slurm has just restarted, perhaps
            if row is None:
                self._ending(number, None)
                if 0 < self._absent.get(number, 0) < MOST_ABSENCES:
                    return Standing(True)
            return Standing(False, row, taken=taken)

    def ending(self, number: str) -> Ending | None:
        """How a job ended that is not alive; None if Slurm does not know. Asks once for all jobs that have left."""
        with self._lock:
            return self._ending(number, self._rows.get(number))

    def place(self, number: str) -> tuple[int, int] | None:
        """The place of a pending job in its partition, from 1, and the number of jobs that wait there, minutes ago.

        This needs the pending jobs of all users, so it is rarely asked for. It counts as a call: the next one is later.
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

    def expire(self) -> None:
        """Ask Slurm again the next time: a job has been submitted, or stopped."""
        self._expired_at = time.time()

    @property
    def silence(self) -> str:
        """The sentence about a Slurm that has not answered for a while; empty if it answers."""
        last = self._snapshot
        is_new = last.taken and time.time() - last.failing_since < SILENT_SECONDS
        if not last.failures or is_new:
            return ""
        since = f"{datetime.fromtimestamp(last.failing_since):%H:%M:%S}"
        return f"Slurm{self._where} has not answered since {since} ({last.error})"

    @property
    def _where(self) -> str:
        return f" on {self._shell.place}" if self._shell.place else ""

    def _refresh(self) -> float:
        """Bring the rows up to date. Returns the time of the answer that they are from."""
        if self._is_due(self._snapshot):
            with self._file.taken(wait=not self._snapshot.taken) as is_mine:
                found = self._file.read() or self._snapshot
                if found.asked >= self._snapshot.asked:
                    self._snapshot = found
                if is_mine and self._is_due(self._snapshot):
                    self._snapshot = self._ask(self._snapshot)
                    self._file.write(self._snapshot)
        if self._parsed_of != self._snapshot.taken:
            self._rows = parse_squeue(self._snapshot.text)
            self._parsed_of = self._snapshot.taken
        return self._snapshot.taken

    def _is_due(self, last: Snapshot) -> bool:
        now = time.time()
        pause = self._poll_seconds * last.calls
        if last.failures:
            pause = min(self._poll_seconds * 2**last.failures, max(LONGEST_BACKOFF_SECONDS, pause))
        elif last.asked < self._expired_at:
            return True
        return not last.asked <= now < last.asked + pause  # the clock may have been set back

    def _ask(self, last: Snapshot) -> Snapshot:
        asked = time.time()
        try:
            answer = self._shell.run(squeue_command(self._cluster), timeout=CALL_SECONDS)
        except PlatformError as error:
            return last.failed(asked, error.message)
        if answer.code:
            return last.failed(asked, _complaint(answer))
        text = answer.out.decode("utf-8", "replace")
        return last.answered(asked, text)

    def _ask_order(self) -> None:
        with self._file.taken(wait=False) as is_mine:
            taken = time.time()
            known = self._file.read()
            if known and known.places_taken > self._snapshot.places_taken:  # another process has just asked
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
        """How a job ended that has left the queue. Asks once for all that have."""
        if self._asked_for.get(number, -1.0) < self._snapshot.taken and number not in self._snapshot.endings:
            self._asked_for[number] = self._snapshot.taken
            with self._file.taken(wait=True):
                self._snapshot = self._file.read() or self._snapshot  # another process may have asked
                if number not in self._snapshot.endings:
                    if self._looked_up.get(number, -1.0) < self._snapshot.taken:
                        self._look_up(number)
                    if number not in self._snapshot.endings and (row is None or row.state in _EXITED):
                        self._look_at_controller(number)
                    self._file.write(self._snapshot)
        found = self._snapshot.endings.get(number)
        if row and found in (None, GONE):  # the accounting is late
            return Ending(
                row.state,
                reason=row.reason,
                nodes=row.nodes,
                ended_at=row.end,
                name=row.name,
                folder=row.folder,
            )
        return None if found == GONE else found

    def _look_up(self, number: str) -> None:
        """Ask the accounting for all jobs that have left, also those that other processes watch."""
        if not self._snapshot.has_accounting:
            return
        left = {other for other, row in self._rows.items() if row.is_ended} | (
            self._watched - self._rows.keys()
        )
        numbers = [number, *sorted(left - {number} - self._snapshot.endings.keys())]
        try:
            answer = self._shell.run(sacct_command(numbers, self._cluster), timeout=CALL_SECONDS)
        except PlatformError:
            return
        if answer.code:
            has_accounting = not any(words in answer.complaint for words in NO_ACCOUNTING)
            self._snapshot = replace(self._snapshot, has_accounting=has_accounting)
            return
        found = parse_sacct(answer.text)
        known = {one: found[one] for one in numbers if one in found and is_ended(found[one].state)}
        for one in numbers:
            if one in found and one not in known:
                self._absent[one] = self._absent.get(one, 0) + 1
        self._looked_up.update(dict.fromkeys(numbers, self._snapshot.taken))
        self._snapshot = self._snapshot.with_endings(known)

    def _look_at_controller(self, number: str) -> None:
        try:
            answer = self._shell.run(scontrol_command(number, self._cluster), timeout=CALL_SECONDS)
        except PlatformError:
            return
        found = parse_scontrol(answer.text) if answer.code == 0 else None
        if found and not is_ended(found.state):  # it is coming back, or a job of another user has its number
            self._absent[number] = self._absent.get(number, 0) + 1
        elif found is None and UNKNOWN_NUMBER in answer.complaint:
            self._snapshot = self._snapshot.with_endings({number: GONE})
        elif found:
            self._snapshot = self._snapshot.with_endings({number: found})


def queue_file(platform: str, login: str, cluster: str) -> Path:
    """Where the processes of this user keep the last answer of a cluster's scheduler."""
    place = "\n".join((login, cluster, os.environ.get("SLURM_CONF", "")))
    return state_home() / "queues" / platform / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.json"


def _complaint(answer: Answer) -> str:
    """The line of an error that says most, without the name of the program."""
    lines = [line.strip() for line in answer.complaint.splitlines() if line.strip()]
    if not lines:
        return f"squeue exited with code {answer.code}"
    return lines[-1].removeprefix("squeue: error: ").removeprefix("slurm_load_jobs error: ")
