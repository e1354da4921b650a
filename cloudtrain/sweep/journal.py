"""The folder of a sweep: its events, its lock, and requests to stop it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from cloudtrain._system.files import append_lines, lock, open_to_append, read_regular
from cloudtrain._system.processes import identity
from cloudtrain._system.users import owns
from cloudtrain.errors import CloudtrainError, JobNotFound, PlatformError, StorageError
from cloudtrain.spec.names import clean
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import replace_file

EVENTS, LOCK, OWNER, STOP, SOURCE, LOG = "events.jsonl", "lock", "owner", "stop", "source", "controller.log"
CHECKPOINTS = "checkpoints"
"""The folder in a sweep's folder for the checkpoints of a population, unless the job specifies another place."""
READER_SECONDS = 2.0
"""The time to wait for a lock whose owner is dead, because a process that looks at the sweep holds it for a moment."""
ENDING_SECONDS = 30.0
"""The time to wait for the owner of a finished sweep, which is about to exit."""
BEAT_SECONDS = 5.0
"""The interval between the owner's heartbeats, for machines on which its lock is not visible."""
SILENT_SECONDS = 60.0
"""An owner on another machine without a heartbeat for this time counts as dead."""
WATCHED_BEATS = 3
"""The number of heartbeat intervals for which a silent owner is watched."""
LARGEST_SKEW = 86400.0
"""The most seconds by which the clocks of two machines may differ, including wrong time zones."""
STOP_ASKING, STOP_TRIALS = 1, 2
"""The ways to stop a sweep: start no further trials, or also stop those that are running."""


def sweeps_home() -> Path:
    """The folder of all sweeps of this user on this machine."""
    return state_home() / "sweeps"


def sweeps_of(jobs: Iterable[str]) -> list[str]:
    """The sweeps of this machine that have trials among ``jobs``, in the order of ``jobs``."""
    try:
        known = set(os.listdir(sweeps_home()))
    except OSError:
        return []
    bases = (name[:-5] for name in jobs if re.fullmatch(r"-\d{4}", name[-5:]))
    return [name for name in dict.fromkeys(bases) if name in known]


class _Beat(NamedTuple):
    """The last heartbeat of an owner on another machine that this process has seen."""

    mtime: float
    since: float
    """The time when it was first seen, by ``time.monotonic``."""
    followed: bool
    """Whether this process saw an earlier one."""


_beats: dict[str, _Beat] = {}
"""The last heartbeat by folder. It is global, because views look at a sweep repeatedly, each time with a new
`Journal`."""


def see_owners(names: Iterable[str]) -> None:
    """Look at the heartbeats of these sweeps, so that silent owners are watched concurrently, not one after another."""
    for name in names:
        with contextlib.suppress(CloudtrainError):  # a sweep that cannot be read
            found = Journal.named(name)
            beat = _Beat(found._beaten_at(), time.monotonic(), followed=False)
            _beats.setdefault(str(found.folder), beat)


class Replaced(PlatformError):
    """Another process has taken over the sweep, because this one sent no heartbeat for too long, on a machine whose
    locks are not visible to others."""


class Journal:
    """The folder of one sweep. Events are only appended, and only by the process that holds the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._stop = 0
        self._owned_as: dict[str, Any] | None = None
        """The record of this process as the owner, from when it took the sweep, as a machine's name may change."""

    @classmethod
    def named(cls, name: str) -> Journal:
        """The sweep of this machine with this name. Raises JobNotFound, PlatformError."""
        found = cls(sweeps_home() / name)
        if clean(name) != name or not (found.folder / EVENTS).is_file():
            raise JobNotFound(
                f"there is no sweep {name} on this machine", hint="See the sweeps with: cloudtrain sweep list"
            )
        if not all(owns(os.lstat(path)) for path in (found.folder, found.folder / EVENTS)):
            raise PlatformError(
                f"{found.folder} belongs to another user, who could change what the sweep runs",
                hint="Remove it, and start the sweep again.",
            )
        return found

    def append(self, event: str, **values: Any) -> dict[str, Any]:
        """Append an event, and wait until it is on disk.

        Raises:
            StorageError: the event cannot be written; a part of it may be on disk.
            Replaced: another process controls the sweep.
        """
        self.check_owner()
        record = {"event": event, "time": time.time(), **values}
        try:
            descriptor = open_to_append(self.folder / EVENTS, 0o600)
            try:
                append_lines(descriptor, json.dumps(record, allow_nan=False).encode() + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(f"{self.folder / EVENTS} cannot be written: {error.strerror}") from error
        return record

    def check_owner(self) -> None:
        """Raises Replaced if another process has taken over the sweep from this one."""
        owner = self.owner() if self._owned_as else None
        if owner not in (None, self._owned_as):
            raise Replaced(f"sweep {self.name} has another controller now: {_shown(owner)}")

    def read(self, start: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The complete events from a position on, and the position after them. Lines cut by a full disk are skipped."""
        try:
            with open(self.folder / EVENTS, "rb") as file:
                file.seek(start)
                data = file.read()
        except OSError as error:
            raise StorageError(f"{self.folder / EVENTS} cannot be read: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]
        events = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("event"), str):
                    events.append(record)
        return events, start + len(whole)

    def request_stop(self, how: int) -> None:
        """Request that the controller stops: `STOP_ASKING` or `STOP_TRIALS`."""
        try:
            replace_file(self.folder / STOP, str(how).encode())
        except OSError:  # such as a full disk; keep it at least in memory
            self._stop = how
            raise

    def requested_stop(self) -> int:
        try:
            return max(self._stop, int(read_regular(self.folder / STOP, 10)))
        except (OSError, ValueError):
            return self._stop

    def forget_stop(self) -> None:
        self._stop = 0
        (self.folder / STOP).unlink(missing_ok=True)

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Own the sweep as its only controller. Raises PlatformError, with the owner, if there is another one."""
        descriptor, ended, mine = open_to_append(self.folder / LOCK, 0o600), Event(), _this_process()
        try:
            self._take(descriptor)
            try:
                replace_file(self.folder / OWNER, json.dumps(mine).encode())
                self._owned_as = mine
                Thread(target=self._beat, args=(ended, mine), daemon=True).start()
                yield
            finally:
                ended.set()
                self._owned_as = None
                with contextlib.suppress(OSError):
                    if self.owner() == mine:
                        (self.folder / OWNER).unlink()
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        has_finished = self._has_finished()
        deadline = time.monotonic() + (ENDING_SECONDS if has_finished else READER_SECONDS)
        try:
            while not (is_free := lock(descriptor, wait=False)):
                if time.monotonic() > deadline or (self._owner_may_live() and not has_finished):
                    break
                time.sleep(READER_SECONDS / 100)  # another process may hold it for a moment, in `is_alive`
        except OSError:  # the file system has no locks, so the record of the owner decides
            is_free = self._is_elsewhere() or not self._owner_may_live()
        if not is_free or self._beats_elsewhere():
            raise PlatformError(
                f"sweep {self.name} has a controller: {_shown(self.owner())}",
                hint=f"Follow it: cloudtrain sweep wait {self.name}. Or end it: cloudtrain sweep stop {self.name}",
            )

    def _has_finished(self) -> bool:
        """Whether the sweep has finished, so that only a continuation can add events."""
        try:
            events, _position = self.read()
        except StorageError:
            return False
        return bool(events) and events[-1]["event"] == "finished"

    def _beat(self, ended: Event, owner: dict[str, Any]) -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                if self.owner() == owner:
                    os.utime(self.folder / OWNER)

    def _beaten_at(self) -> float:
        """The time of the owner's last heartbeat, in seconds since the epoch; 0 if there is no owner.

        The file is opened, because NFS may otherwise return an old modification time.
        """
        try:
            with open(self.folder / OWNER, "rb") as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:
            return 0.0

    def _is_elsewhere(self) -> bool:
        owner = self.owner()
        return owner is not None and owner.get("host") != _this_process()["host"]

    def _beats_elsewhere(self) -> bool:
        """Whether a process on another machine controls the sweep. On many clusters, its lock is not visible here."""
        return self._beats_after(self._beaten_at(), time.monotonic() + WATCHED_BEATS * BEAT_SECONDS)

    def _beats_after(self, mtime: float, deadline: float) -> bool:
        """Whether an owner on another machine sends a heartbeat before the deadline."""
        while self._is_elsewhere() and time.monotonic() < deadline:
            if (found := self._beaten_at()) != mtime:
                _beats[str(self.folder)] = _Beat(found, time.monotonic(), followed=True)
                return True
            time.sleep(BEAT_SECONDS / 20)
        return False

    def _has_beaten(self, *, wait: bool) -> bool:
        """Whether the owner on another machine has sent a heartbeat in the last `SILENT_SECONDS`.

        As the clock of that machine may differ, a heartbeat that seems to be old is only compared with earlier ones.
        """
        mtime, now = self._beaten_at(), time.monotonic()
        age = abs(time.time() - mtime)
        if age < SILENT_SECONDS or age > LARGEST_SKEW:
            return age < SILENT_SECONDS
        last = _beats.get(str(self.folder))
        if last is None or last.mtime != mtime:
            last = _beats[str(self.folder)] = _Beat(mtime, now, followed=last is not None)
        if last.followed:
            return now - last.since < SILENT_SECONDS
        until = last.since + WATCHED_BEATS * BEAT_SECONDS
        return (not wait and now < until) or self._beats_after(mtime, until)

    def is_alive(self, *, wait: bool = True) -> bool:
        """Whether a process controls the sweep; true if that is unknown.

        Args:
            wait: whether to watch a silent owner on another machine until the answer is known. A view that looks
                repeatedly may leave that to later looks.
        """
        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            if not lock(descriptor, wait=False, shared=True):
                return True
        except OSError:
            return self._owner_may_live(wait=wait)
        finally:
            os.close(descriptor)
        # the lock is released, because watching the owner may take seconds
        return self._is_elsewhere() and self._owner_may_live(wait=wait)

    def owner(self) -> dict[str, Any] | None:
        """The record of the process that controls the sweep, or controlled it until it was killed."""
        try:
            found = json.loads(read_regular(self.folder / OWNER, 10_000))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _owner_may_live(self, *, wait: bool = True) -> bool:
        owner, here = self.owner(), _this_process()
        if owner is None or owner == here:
            return False
        if owner.get("host") != here["host"]:
            return self._has_beaten(wait=wait)
        return identity(int(owner.get("pid") or 0)) == owner.get("identity")


def _shown(owner: dict[str, Any] | None) -> str:
    owner = owner or {}
    return f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"


def _this_process() -> dict[str, Any]:
    import socket  # here, because a list of jobs imports this module, and does not need it

    return {"pid": os.getpid(), "host": socket.gethostname(), "identity": identity(os.getpid())}
