"""The jobs that this user has submitted from this machine, on any platform."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
    database = sqlite3.connect(state_home() / "index.db", timeout=30)
    try:
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS jobs"
                " (name TEXT, platform TEXT, submitted_at REAL, PRIMARY KEY (name, platform))"
            )
            yield database
    finally:
        database.close()
