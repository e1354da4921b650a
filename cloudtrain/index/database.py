"""The file of the index, an SQLite database. If it cannot be used, the callers continue without it.

Several processes write it concurrently. On a local disk, it has a write-ahead log, so that a reader that keeps it open
blocks no writer. Such a log needs shared memory in a file, which network file systems do not support. On those, it has
a rollback journal, and readers and writers wait for each other, for at most `LOCKED_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from cloudtrain._system.mounts import is_on_network
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import StorageError
from cloudtrain.index.schema import Newer, migrate
from cloudtrain.storage import state_home

T = TypeVar("T")

FILE = "index.db"
LOGS = ("-journal", "-wal", "-shm")
"""The suffixes of the files that SQLite keeps next to the database."""
LOCKED_SECONDS = 5.0
"""The time to wait for a process that is writing. A paused process may never release the lock."""
AGAIN_SECONDS = 0.1
"""The time to wait after a wait that failed, until one succeeds."""
_in_vain: set[bool] = set()
"""Contains True if the last wait to write failed, and False if the last wait to read did."""
DAMAGED = "malformed|not a database|file format|encrypted|no such (table|column)|has no column|already exists"
"""Matches the errors of SQLite that are caused by the file. Its error codes need Python 3.11."""


def read(action: Callable[[sqlite3.Connection], T], consequence: str) -> T | None:
    """The result of ``action``, which reads the index. Nothing is written, but a damaged index is moved aside.

    Args:
        action: called with the open database.
        consequence: what the warning says will happen because the index cannot be used.
    """
    return _use(action, consequence, writes=False)


def write(action: Callable[[sqlite3.Connection], T], consequence: str) -> T | None:
    """The result of ``action``, which runs in a transaction; the index is created if it does not exist."""

    def in_transaction(database: sqlite3.Connection) -> T:
        # A power failure may lose the last jobs, which have folders or tickets, but not the history of jobs that
        # ``clean`` has removed.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN IMMEDIATE")
        migrate(database)
        return action(database)

    return _use(in_transaction, consequence, writes=True)


def _use(action: Callable[[sqlite3.Connection], T], consequence: str, *, writes: bool) -> T | None:
    """The result of ``action``; None if the index is missing or, with a warning, if it cannot be used."""
    problem = ""
    for _ in range(2):
        try:
            path = state_home() / FILE
            seen = _status(path)
            if seen is None and not writes:
                return None
            if seen is None or stat.S_ISREG(seen.st_mode):  # opening a pipe would block
                found = _with_file(path, action, writes=writes)
                _in_vain.discard(writes)
                return found
            problem = f"{path} is not a file"
        except Newer:
            problem = f"a later version of cloudtrain has written {path}"
            break
        except StorageError as error:
            problem = error.message
            break
        except (OSError, sqlite3.Error, UnicodeError) as error:  # a name in the schema may be damaged, too
            problem = f"{path}: {escape_line(str(error))}"
            if "locked" in str(error):
                _in_vain.add(writes)
            if not _is_damage(error):
                break
        _move_aside(path, seen)
    if consequence:
        _warn(f"the index of jobs cannot be used ({problem}): {consequence}")
    return None


def _with_file(path: Path, action: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
    """The result of ``action``. In a full or read-only folder, readers open the file without a log."""
    try:
        with _database(path, "rwc" if writes else "ro", writes=writes) as database:
            try:
                return action(database)
            except sqlite3.OperationalError as error:
                if "decode" not in str(error):
                    raise
                database.text_factory = lambda data: data.decode("utf-8", "replace")  # slow
                return action(database)
    except sqlite3.OperationalError as error:
        log = _status(path.with_name(f"{path.name}-wal"))
        if writes or "locked" in str(error) or _is_damage(error) or (log and log.st_size):
            raise
    with _database(path, "ro&immutable=1", writes=False) as database:
        return action(database)


@contextmanager
def _database(path: Path, mode: str, *, writes: bool) -> Iterator[sqlite3.Connection]:
    """Open the database, and commit a transaction at the end."""
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, timeout=_patience(writes), uri=True)) as database:
        if writes:
            _choose_log(database, path)
        with database:
            yield database


def _patience(writes: bool) -> float:
    return min(AGAIN_SECONDS, LOCKED_SECONDS) if writes in _in_vain else LOCKED_SECONDS


def _choose_log(database: sqlite3.Connection, path: Path) -> None:
    """Set the kind of log, which is stored in the file; if other processes are using the file, leave it as it is."""
    if not is_on_network(str(path.parent)):
        _set_log(database, "wal")
        return
    with closing(sqlite3.connect(path, timeout=_patience(True))) as alone:
        alone.execute("PRAGMA locking_mode = EXCLUSIVE")  # opens a log of another disk without shared memory
        _set_log(alone, "delete")


def _set_log(database: sqlite3.Connection, wanted: str) -> None:
    if database.execute("PRAGMA journal_mode").fetchone() != (wanted,):
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute(f"PRAGMA journal_mode = {wanted}")


def _is_damage(error: Exception) -> bool:
    """Whether the cause is the file itself, rather than a query, a lock, or the disk."""
    if isinstance(error, sqlite3.Error):
        return bool(re.search(DAMAGED, str(error)))
    return isinstance(error, UnicodeDecodeError)


def _status(path: Path) -> os.stat_result | None:
    """The status of a file; None if it does not exist. Raises OSError."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _move_aside(path: Path, seen: os.stat_result | None) -> None:
    """Rename the damaged index and its logs, unless another process has already done so. Nothing is deleted."""
    names = ("index.damaged.db", *(f"index.damaged.{number}.db" for number in range(2, 1000)))
    aside = next(place for name in names if not os.path.lexists(place := path.with_name(name)))
    with contextlib.suppress(OSError):  # then the second try ends with a warning
        if seen is None or not os.path.samestat(path.stat(), seen):
            return
        for end in LOGS:
            with contextlib.suppress(FileNotFoundError):  # first, before a new index exists
                path.with_name(path.name + end).replace(aside.with_name(aside.name + end))
        path.replace(aside)
        _warn(
            f"the index of jobs {path} was damaged, and was moved to {aside.name}: jobs that have no folder or ticket "
            "on this machine are only found on their platform: cloudtrain list --platform sagemaker. The history of "
            "jobs that clean has removed is lost, unless sqlite3 can recover it from that file"
        )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
