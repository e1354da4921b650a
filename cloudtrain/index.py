"""The index of the jobs that this user submitted from this machine, on any platform.

Every function raises StorageError if the index file cannot be used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from cloudtrain.contract.documents import is_number
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import StorageError
from cloudtrain.storage import state_home


@dataclass(frozen=True)
class IndexEntry:
    """One submitted job. ``submitted_at`` is in seconds since the epoch."""

    name: str
    platform: str
    submitted_at: float


def add_job(entry: IndexEntry) -> bool:
    """Add a job. Returns False, and changes nothing, if the index has one with this name and platform."""
    with _database() as database:
        added = database.execute(
            "INSERT OR IGNORE INTO jobs (name, platform, submitted_at) VALUES (?, ?, ?)",
            (entry.name, entry.platform, entry.submitted_at),
        )
        return added.rowcount > 0


def remove_job(entry: IndexEntry) -> None:
    """Remove a job. Does nothing if the index does not have it."""
    with _database() as database:
        database.execute("DELETE FROM jobs WHERE name = ? AND platform = ?", (entry.name, entry.platform))


def find_job(name: str) -> IndexEntry | None:
    """The newest job with this name, or None."""
    with _database() as database:
        row = database.execute(
            "SELECT name, platform, submitted_at FROM jobs WHERE name = ? ORDER BY submitted_at DESC", (name,)
        ).fetchone()
    return next(_entries([row]), None) if row else None


def list_jobs() -> list[IndexEntry]:
    """All jobs, newest first."""
    with _database() as database:
        rows = database.execute(
            "SELECT name, platform, submitted_at FROM jobs ORDER BY submitted_at DESC"
        ).fetchall()
    return list(_entries(rows))


def _entries(rows: Iterable[Any]) -> Iterator[IndexEntry]:
    """The jobs in ``rows``, without those that are damaged."""
    for name, platform, submitted_at in rows:
        if isinstance(name, str) and isinstance(platform, str) and is_number(submitted_at):
            yield IndexEntry(name, platform, submitted_at)


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    """A transaction. Raises StorageError if the file is damaged, or cannot be opened or written."""
    path = state_home() / "index.db"
    try:
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            # Do not call fsync: it would take most of the time of a submission. Killing the process does no damage; a
            # power failure may lose the index, but no job. (A write-ahead log is synced when a connection closes.)
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS jobs"
                " (name TEXT, platform TEXT, submitted_at REAL, PRIMARY KEY (name, platform))"
            )
            yield database
    except (sqlite3.Error, UnicodeError) as error:  # a name in the schema may be damaged, too
        is_full = "disk is full" in str(error)  # SQLITE_FULL; sqlite_errorcode needs Python 3.11
        raise StorageError(
            f"the index of jobs {path} cannot be used: {escape_line(str(error))}",
            hint=f"Free space in {path.parent}, or set CLOUDTRAIN_HOME to a folder on another disk."
            if is_full
            else "Remove it: that loses the list of jobs, but no job.",
        ) from error
