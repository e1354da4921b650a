"""The notifications of a job and their state, in ``notifications.jsonl``, to which lines are appended.

``{"notification": {...}}`` is a notification that is due, ``{"key", "rule", "sent"}`` one that a place has received,
and ``{"key", "rule", "error", "time", "again"}`` a failed try. ``rule`` is the position in the job's ``notify``. Only
the process that holds the lock sends notifications, and marks those that a place has received. If it is killed between
the two, the next process resends the notification with the same key. ``notifications.beat`` has the time of its last
heartbeat, on the clock of the job. On a file system without locks, such as Lustre without ``flock``, several processes
may send at the same time; then a place gets a notification more than once, with the same key.

A paused process keeps the lock. Another process that sees no heartbeat for `SILENT_SECONDS` replaces
``notifications.lock`` with a new file, and sends. The paused process notices this when it resumes, and stops sending.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudtrain._system.files import READ_REGULAR, append_lines, lock, open_regular, open_to_append
from cloudtrain._system.retries import again
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.text import to_json
from cloudtrain.observe import steady
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.rules import Rule

NOTIFICATIONS = "notifications.jsonl"
NOTIFICATIONS_LOCK = "notifications.lock"
NOTIFICATIONS_BEAT = "notifications.beat"
MOST_BYTES = 16 << 20
BEAT_SECONDS = 10.0
"""Seconds between two heartbeats, which show other processes that the process with the lock is working."""
SILENT_SECONDS = 3 * BEAT_SECONDS
"""A process counts as paused after it was watched for this time without a heartbeat."""
LONGEST_BEAT = 64
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems that have no locks."""

Signs = tuple[int, bytes]
"""The inode of the lock, and the last heartbeat of a process that holds it."""

Place = tuple[str, int]
"""The key of a notification, and the position of the rule that it is sent for."""


@dataclass(frozen=True)
class Failed:
    """The last try to send a notification to a place."""

    error: str
    time: float
    again: bool


@dataclass
class Sent:
    """The content of an outbox."""

    notifications: dict[str, Notification] = field(default_factory=dict)
    sent: set[Place] = field(default_factory=set)
    failed: dict[Place, Failed] = field(default_factory=dict)

    def due(self, rules: Sequence[Rule]) -> list[tuple[Notification, int]]:
        """The notifications that have not arrived, each with the position of its rule."""
        return [
            (notification, number)
            for notification in self.notifications.values()
            for number, rule in enumerate(rules)
            if is_wanted(rule, notification) and (notification.key, number) not in self.sent
        ]


def is_wanted(rule: Rule, notification: Notification) -> bool:
    """Whether ``rule`` applies to this event. The end of a job that hangs is both ``failed`` and ``hanging``."""
    events = {notification.event, "hanging"} if notification.failure_class == "hang" else {notification.event}
    if notification.event == "cost":  # each rule has its own limit
        return "cost" in rule.on and notification.key.endswith(f"/{rule.cost_above:g}")
    return not events.isdisjoint(rule.on)


class Outbox:
    """The notifications in the folder of a job."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOTIFICATIONS
        self._lock = folder / NOTIFICATIONS_LOCK
        self._beat = folder / NOTIFICATIONS_BEAT
        self._held: int | None = None
        """The descriptor of the lock while this process holds it."""
        self._next_beat = 0.0

    def post(self, notification: Notification) -> None:
        """Add a notification. A key that is already in the outbox is ignored. Raises OSError."""
        self._append({"notification": notification.to_dict()})

    def note_sent(self, place: Place) -> None:
        self._append({"key": place[0], "rule": place[1], "sent": round(time.time(), 3)})

    def note_failed(self, place: Place, error: str, *, may_arrive: bool) -> None:
        """Record a failed try. ``may_arrive``: whether another try may succeed."""
        now = round(time.time(), 3)
        self._append({"key": place[0], "rule": place[1], "error": error, "time": now, "again": may_arrive})

    def read(self) -> Sent:
        """The content of the outbox; empty if it has no file. Raises OSError."""
        try:
            with open(open_regular(self._path, READ_REGULAR), "rb") as file:
                return parse_outbox(file.read(MOST_BYTES))
        except FileNotFoundError:
            return Sent()

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock during the block, if no other process does. Raises OSError.

        Yields whether this process holds it, which is also true if the file system has no locks.
        """
        descriptor = open_regular(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            is_held = _is_locked(descriptor) and self._is_lock(descriptor)
            self._held = descriptor if is_held else None
            yield is_held
        finally:
            self._held = None
            os.close(descriptor)

    @property
    def is_taken_over(self) -> bool:
        """Whether another process has taken over the lock that this one holds, because this one was paused."""
        return self._held is not None and not self._is_lock(self._held)

    def _is_lock(self, descriptor: int) -> bool:
        with contextlib.suppress(OSError):  # an error does not mean that another process has it
            return os.path.samestat(os.fstat(descriptor), os.stat(self._lock))
        return True

    def signs(self) -> Signs:
        """A value that changes every `BEAT_SECONDS` while the process with the lock works. Raises OSError."""
        with open(open_regular(self._beat, READ_REGULAR), "rb") as file:
            return os.stat(self._lock).st_ino, file.read(LONGEST_BEAT)

    def take_over(self, seen: Signs) -> bool:
        """Take the lock from the process that holds it, if `signs` has not changed since it returned ``seen``.

        Call this at least `SILENT_SECONDS` later. Returns whether `held` can get the lock now. Raises OSError.
        """
        descriptor = open_regular(self._beat, os.O_RDWR)
        try:
            if not _is_locked(descriptor) or self.signs() != seen:  # another process does the same
                return False
            new = self._lock.with_name(f"{self._lock.name}.new")
            os.close(open_regular(new, os.O_RDWR | os.O_CREAT, 0o600))
            os.replace(new, self._lock)
            return True
        finally:
            os.close(descriptor)

    @property
    def has_sender(self) -> bool:
        """Whether a process holds the lock in order to send notifications, as far as this machine can see."""
        try:
            descriptor = open_regular(self._lock, os.O_RDWR)
        except OSError:
            return False
        try:
            return not lock(descriptor, wait=False, shared=True)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def beat(self) -> None:
        """Write a heartbeat of this process, at most once in `BEAT_SECONDS`. Raises OSError."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        descriptor = open_regular(self._beat, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # with a fixed width, because it overwrites the last one in place
            os.write(descriptor, b"%011d\n" % steady.now())
        finally:
            os.close(descriptor)

    def _append(self, record: dict[str, object]) -> None:
        line = f"{to_json(record)}\n".encode("utf-8", "backslashreplace")

        def append() -> None:
            descriptor = open_to_append(self._path, 0o600)
            try:
                append_lines(descriptor, line)
            finally:
                os.close(descriptor)

        again(append)


def _is_locked(descriptor: int) -> bool:
    """Lock an open file. Returns false if another process has locked it. Raises OSError."""
    try:
        return lock(descriptor, wait=False)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True


def parse_outbox(data: bytes) -> Sent:
    """The content of a file. Lines that a crash cut short are skipped."""
    found = Sent()
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            _add(Fields(parse_json(line)), found)
    return found


def _add(given: Fields, found: Sent) -> None:
    if "notification" in given:
        notification = Notification.from_dict(given.mapping("notification"))
        found.notifications.setdefault(notification.key, notification)
        return
    place = (given.text("key"), given.integer("rule"))
    if "sent" in given:
        found.sent.add(place)
        found.failed.pop(place, None)
    else:
        found.failed[place] = Failed(given.text("error"), given.time("time"), given.boolean("again", True))
