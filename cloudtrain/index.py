"""The jobs that this user submitted from this machine, on any platform.

Job folders and tickets show where most jobs are. The index, a database, adds the others and the order. It is a cache:
one that cannot be used gives a warning, and neither blocks a submission nor hides a job that has a folder or a ticket.

It also remembers on which platform ``cloudtrain list --platform`` has found a job. Such a job may be someone else's: it
is found by its name, and is not one of `list_jobs`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from cloudtrain.contract.documents import is_number
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import StorageError
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import is_temporary

T = TypeVar("T")
Row = tuple[str, str, float]
"""The `COLUMNS` of a submission."""

VERSION = 2
"""Of the schema: since 2, each submission has its own row, so that one that fails removes no other."""
LOCKED_SECONDS = 5.0
"""How long to wait for a process that writes. One that is paused may never release it."""
RECORD = "state.json"
"""The file that makes a folder that of a job: see `cloudtrain.runtime.supervisor.record`."""
NOT_DAMAGED = "locked|busy|readonly|unable to open|permission|disk|memory"
"""In errors of SQLite whose cause is outside of the file. Its error codes need Python 3.11."""
COLUMNS = "name, platform, submitted_at"
SUBMISSIONS = "submissions"
FOUND = "found"
"""The table of jobs that a platform has listed. It came after version 2, so it may be missing."""


@dataclass(frozen=True)
class IndexEntry:
    """One submitted job. ``submitted_at`` is in seconds since the epoch."""

    name: str
    platform: str
    submitted_at: float


def add_job(entry: IndexEntry) -> int | None:
    """Add a submission, and return its number for `remove_submission`; None if the index cannot be written."""

    def add(database: sqlite3.Connection) -> int | None:
        row = (entry.name, entry.platform, entry.submitted_at)
        return database.execute(f"INSERT INTO submissions ({COLUMNS}) VALUES (?, ?, ?)", row).lastrowid

    return _write(add, f"job {entry.name} on {entry.platform} is not added to it")


def remove_submission(number: int | None) -> None:
    """Remove a submission that failed. Another submission of the same name stays."""
    if number is not None:
        _write(
            lambda database: database.execute("DELETE FROM submissions WHERE rowid = ?", (number,)),
            "it keeps a submission that failed",
        )


def remove_job(name: str, platform: str) -> None:
    """Remove all submissions of a job that is gone."""

    def remove(database: sqlite3.Connection) -> None:
        for table in filter(partial(_has, database), (SUBMISSIONS, FOUND)):
            database.execute(f"DELETE FROM {table} WHERE name = ? AND platform = ?", (name, platform))

    _write(remove, f"it keeps the job {name}, which is gone")


def remember_found(entries: Sequence[IndexEntry]) -> None:
    """Add jobs that a platform has listed, for `find_job`."""

    def add(database: sqlite3.Connection) -> None:
        database.execute(f"CREATE TABLE IF NOT EXISTS {FOUND} ({COLUMNS}, PRIMARY KEY (name, platform))")
        rows = [(entry.name, entry.platform, entry.submitted_at) for entry in entries]
        database.executemany(f"REPLACE INTO {FOUND} ({COLUMNS}) VALUES (?, ?, ?)", rows)

    if entries:
        _write(add, "the jobs of this list are not found by their names alone")


def find_job(name: str) -> IndexEntry | None:
    """The newest job with this name: one that was submitted from this machine, else one that was listed; or None."""
    found = [IndexEntry(*row) for row in _read("WHERE name = ?", name)]
    found += _found_in_state(name, {(entry.name, entry.platform) for entry in found})
    found = found or [IndexEntry(*row) for row in _read("WHERE name = ?", name, table=FOUND)]
    return max(found, key=lambda entry: entry.submitted_at, default=None)


def list_jobs(limit: int | None = None) -> list[IndexEntry]:
    """All jobs that were submitted from this machine, newest first; at most ``limit``."""
    rows = sorted(_read(), key=itemgetter(2))
    found = {(name, platform): submitted_at for name, platform, submitted_at in rows}  # the last one counts
    for entry in _found_in_state(known=found):
        found[entry.name, entry.platform] = entry.submitted_at
    newest = sorted(found.items(), key=itemgetter(1), reverse=True)[:limit]
    return [IndexEntry(*job, submitted_at) for job, submitted_at in newest]


def _found_in_state(
    name: str | None = None, known: Container[tuple[str, str]] = frozenset()
) -> Iterator[IndexEntry]:
    """The jobs that have a folder or a ticket in the state folder, except ``known``: all, or those called ``name``."""
    try:
        home = str(state_home())
    except StorageError:
        return
    for folder, suffix, proof in (("jobs", "", f"/{RECORD}"), ("clusters", ".json", "")):
        for platform in _names(f"{home}/{folder}"):
            files = _names(f"{home}/{folder}/{platform}") if name is None else [f"{name}{suffix}"]
            for file in files:
                job = file[: len(file) - len(suffix)]
                if (job, platform) in known or not file.endswith(suffix):
                    continue
                if not (is_temporary(file) or {"/", os.sep} & {*job}):
                    with contextlib.suppress(OSError, ValueError):
                        changed = os.lstat(f"{home}/{folder}/{platform}/{file}{proof}").st_mtime
                        yield IndexEntry(job, platform, changed)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(where: str = "", *values: str, table: str = SUBMISSIONS) -> list[Row]:
    """The rows that are not damaged; none if the index cannot be used. Writes nothing, except a damaged index."""

    def read(database: sqlite3.Connection) -> list[Any]:
        name = table if _version(database) else "jobs"
        if not _has(database, name):
            return []  # another process is creating it
        return database.execute(f"SELECT {COLUMNS} FROM {name} {where}", values).fetchall()

    rows = _use(read, "only jobs with a folder or a ticket on this machine are found", writes=False)
    return [row for row in rows or () if _is_whole(*row)]


def _write(change: Callable[[sqlite3.Connection], T], consequence: str) -> T | None:
    def write(database: sqlite3.Connection) -> T:
        # Do not call fsync: it would take most of the time of a submission. Killing the process does no damage; a
        # power failure may lose the index, but no job. (A write-ahead log is synced when a connection closes.)
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN IMMEDIATE")
        if not _version(database):
            _create(database)
        return change(database)

    return _use(write, consequence, writes=True)


def _create(database: sqlite3.Connection) -> None:
    """Create the table, with the rows of version 1."""
    database.execute("CREATE TABLE submissions (name TEXT, platform TEXT, submitted_at REAL)")
    if _has(database, "jobs"):
        database.execute(f"INSERT INTO submissions SELECT {COLUMNS} FROM jobs")
    database.execute(f"PRAGMA user_version = {VERSION}")


def _has(database: sqlite3.Connection, table: str) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _version(database: sqlite3.Connection) -> int:
    """0 before version 2. Raises _Newer."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise _Newer
    return version


class _Newer(Exception):
    """A later version of cloudtrain has written the index."""


def _use(action: Callable[[sqlite3.Connection], T], consequence: str, *, writes: bool) -> T | None:
    """The result of ``action``; None if the index is missing, or cannot be used, with a warning."""
    problem = ""
    for _ in range(2):
        try:
            path = state_home() / "index.db"
            seen = _status(path)
            if seen is None and not writes:
                return None
            if seen is None or stat.S_ISREG(seen.st_mode):  # opening a pipe would block
                with _database(path, writes=writes) as database:
                    return action(database)
            problem = f"{path} is not a file"
        except _Newer:
            problem = f"a later version of cloudtrain has written {path}"
            break
        except StorageError as error:
            problem = error.message
            break
        except (OSError, sqlite3.Error, UnicodeError) as error:  # a name in the schema may be damaged, too
            problem = f"{path}: {escape_line(str(error))}"
            if not _is_damage(error):
                break
        _move_aside(path, seen)
    _warn(f"the index of jobs cannot be used ({problem}): {consequence}")
    return None


@contextmanager
def _database(path: Path, *, writes: bool) -> Iterator[sqlite3.Connection]:
    """A transaction, if ``writes``."""
    uri = f"{path.as_uri()}?mode={'rwc' if writes else 'ro'}"
    with closing(sqlite3.connect(uri, LOCKED_SECONDS, uri=True)) as database, database:
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        yield database


def _is_damage(error: Exception) -> bool:
    """Whether the file itself is wrong, rather than locked, unreadable or on a full disk."""
    if isinstance(error, sqlite3.OperationalError):
        return not re.search(NOT_DAMAGED, str(error))
    return not isinstance(error, OSError)


def _status(path: Path) -> os.stat_result | None:
    """None if the file does not exist. Raises OSError."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _move_aside(path: Path, seen: os.stat_result | None) -> None:
    """Rename the damaged index, unless another process has already done so."""
    aside = path.with_name("index.damaged.db")
    with contextlib.suppress(OSError):  # then the second try ends with a warning
        if seen is None or not os.path.samestat(path.stat(), seen):
            return
        path.with_name("index.db-journal").unlink(missing_ok=True)  # not that of the next index
        if aside.is_dir():
            aside.rmdir()
        path.replace(aside)
        _warn(
            f"the index of jobs {path} was damaged, and was moved to {aside.name}: jobs that have no folder or ticket "
            "on this machine are only found on their platform: cloudtrain list --platform sagemaker"
        )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def _is_whole(name: object, platform: object, submitted_at: object) -> bool:
    return isinstance(name, str) and isinstance(platform, str) and is_number(submitted_at)
