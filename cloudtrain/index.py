"""The jobs that this user has submitted from this machine, on any platform.

Every function raises StorageError where the file of the index cannot be used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from cloudtrain.errors import StorageError
from cloudtrain.storage import state_home


@dataclass(frozen=True)
class IndexEntry:
    """One submitted job. ``submitted_at`` is in seconds since the epoch."""

    name: str
    platform: str
    submitted_at: float


def add_job(entry: IndexEntry) -> bool:
    """Remember a job; False, and no change, where one of this name and platform is known."""
    with _database() as database:
        added = database.execute(
            "INSERT OR IGNORE INTO jobs (name, platform, submitted_at) VALUES (?, ?, ?)",
            (entry.name, entry.platform, entry.submitted_at),
        )
        return added.rowcount > 0


def remove_job(entry: IndexEntry) -> None:
    """Forget a job; one that is not there counts as forgotten."""
    with _database() as database:
        database.execute("DELETE FROM jobs WHERE name = ? AND platform = ?", (entry.name, entry.platform))


def find_job(name: str) -> IndexEntry | None:
    """The newest job of this name, or None."""
    with _database() as database:
        row = database.execute(
            "SELECT name, platform, submitted_at FROM jobs WHERE name = ? ORDER BY submitted_at DESC", (name,)
        ).fetchone()
    return IndexEntry(*row) if row else None


def list_jobs() -> list[IndexEntry]:
    """All jobs, the newest first."""
    with _database() as database:
        rows = database.execute(
            "SELECT name, platform, submitted_at FROM jobs ORDER BY submitted_at DESC"
        ).fetchall()
    return [IndexEntry(*row) for row in rows]


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    """A transaction. Raises StorageError where the file is damaged, or cannot be opened or written."""
    path = state_home() / "index.db"
    try:
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            # No fsync, which would be most of a submit's time. A killed process damages nothing; a power cut may,
            # and then only this list is lost. (A write-ahead log would be synced whenever a connection closes.)
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS jobs"
                " (name TEXT, platform TEXT, submitted_at REAL, PRIMARY KEY (name, platform))"
            )
            yield database
    except sqlite3.Error as error:
        raise StorageError(
            f"the index of jobs {path} cannot be used: {error}",
            hint="Remove it: jobs on their platforms are not touched.",
        ) from error
