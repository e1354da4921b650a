"""The jobs that this user submitted from this machine, on any platform.

Job folders and tickets show where most jobs are. The index, a database, adds the others and the order. If it cannot be
used, there is a warning, but submissions are not blocked, and jobs with a folder or a ticket are found. It is the only
copy of the history of jobs whose records are gone, such as those that ``clean`` has removed.

It also records on which platform ``cloudtrain list --platform`` has found a job. As such a job may be another user's,
it is found by its name, but not listed by `list_jobs`. And it records how jobs ended: see `cloudtrain.history`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from cloudtrain.contract.documents import is_number
from cloudtrain.contract.text import is_text
from cloudtrain.errors import StorageError
from cloudtrain.index import database as index
from cloudtrain.index.schema import BEFORE, ENTRY, FOUND, JOBS, VERSION as VERSION, has, version
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import is_temporary

RECORD = "state.json"
"""The file whose presence makes a folder a job folder: see `cloudtrain.runtime.supervisor.record`."""


class IndexEntry(NamedTuple):
    """One submitted job. ``submitted_at`` is in seconds since the epoch."""

    name: str
    platform: str
    submitted_at: float


def add_job(
    entry: IndexEntry, facts: Mapping[str, Any] | None = None, parameters: Mapping[str, str] | None = None
) -> int | None:
    """Add a submission, and return its number for `remove_submission`; None if the index cannot be written.

    Args:
        facts: the columns of its row that are already known.
        parameters: the parameters of its script, as text.
    """
    values = {
        "name": entry.name,
        "platform": entry.platform,
        "submitted_at": entry.submitted_at,
        **(facts or {}),
    }

    def add(database: sqlite3.Connection) -> int | None:
        number = insert(database, values)
        set_parameters(database, number, parameters or {})
        return number

    return index.write(add, f"job {entry.name} on {entry.platform} is not added to it")


def insert(database: sqlite3.Connection, values: Mapping[str, Any]) -> int | None:
    """Add a row, and return its number."""
    places = ", ".join("?" * len(values))
    sql = f"INSERT INTO {JOBS} ({', '.join(values)}) VALUES ({places})"
    return database.execute(sql, [*values.values()]).lastrowid


def set_parameters(database: sqlite3.Connection, number: int | None, parameters: Mapping[str, str]) -> None:
    rows = [(number, name, value, to_number(value)) for name, value in parameters.items()]
    database.executemany("REPLACE INTO parameters VALUES (?, ?, ?, ?)", rows)


def to_number(text: str) -> float | None:
    """``text`` as a finite number; None for other text."""
    with contextlib.suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else None
    return None


def remove_submission(number: int | None) -> None:
    """Remove a submission that failed, but not other submissions of the same name."""
    if number is not None:
        index.write(lambda database: _drop(database, "id = ?", number), "it keeps a submission that failed")


def remove_job(name: str, platform: str) -> None:
    """Remove all submissions of a job that is gone. Its end stays in the history."""

    def remove(database: sqlite3.Connection) -> None:
        _drop(database, "name = ? AND platform = ? AND ended_at IS NULL", name, platform)
        database.execute(f"UPDATE {JOBS} SET is_listed = 0 WHERE name = ? AND platform = ?", (name, platform))
        if has(database, FOUND):
            database.execute(f"DELETE FROM {FOUND} WHERE name = ? AND platform = ?", (name, platform))

    index.write(remove, f"it keeps the job {name}, which is gone")


def _drop(database: sqlite3.Connection, where: str, *values: object) -> None:
    for table in ("parameters", "metrics"):
        database.execute(f"DELETE FROM {table} WHERE job IN (SELECT id FROM {JOBS} WHERE {where})", values)
    database.execute(f"DELETE FROM {JOBS} WHERE {where}", values)


def remember_found(entries: Sequence[IndexEntry]) -> None:
    """Add jobs that a platform has listed, so that `find_job` finds them."""

    def add(database: sqlite3.Connection) -> None:
        database.execute(f"CREATE TABLE IF NOT EXISTS {FOUND} ({ENTRY}, PRIMARY KEY (name, platform))")
        rows = [(entry.name, entry.platform, entry.submitted_at) for entry in entries]
        database.executemany(f"REPLACE INTO {FOUND} ({ENTRY}) VALUES (?, ?, ?)", rows)

    if entries:
        index.write(add, "the jobs of this list are not found by their names alone")


def find_job(name: str) -> IndexEntry | None:
    """The newest job with this name that was submitted from this machine, else one that was listed; None if none."""
    if not is_text(name):
        return None
    found = [IndexEntry(*row) for row in _read("name = ?", name)]
    found += found_in_state(name, {(entry.name, entry.platform) for entry in found})
    found = found or [IndexEntry(*row) for row in _read("name = ?", name, table=FOUND)]
    return max(found, key=lambda entry: entry.submitted_at, default=None)


def when_submitted(name: str, platform: str) -> float | None:
    """The time of the last submission of this name on ``platform``, in seconds since the epoch; None if unknown."""
    found = [row[2] for row in rows_named(name) if row[1] == platform]
    return found[-1] if found else None


def rows_named(name: str, columns: str = "") -> list[Sequence[Any]]:
    """The `ENTRY` and the given columns of all submissions with this name, the newest last."""
    return _read("name = ? ORDER BY rowid", name, columns=columns)


def list_jobs(limit: int | None = None) -> list[IndexEntry]:
    """All jobs that were submitted from this machine, newest first; at most ``limit``."""
    return [IndexEntry(*row[:3]) for row in list_rows(limit)]


def list_rows(limit: int | None = None, columns: str = "") -> list[Sequence[Any]]:
    """The `ENTRY` of each job of `list_jobs`, followed by the given columns if it has a row of this version."""
    rows = sorted(_read(columns=columns), key=itemgetter(2))
    found: dict[tuple[str, str], Sequence[Any]] = {
        (row[0], row[1]): row for row in rows
    }  # of several, the last one is kept
    for entry in found_in_state(known=found):
        found[entry.name, entry.platform] = (entry.name, entry.platform, entry.submitted_at)
    return sorted(found.values(), key=itemgetter(2), reverse=True)[:limit]


def found_in_state(
    name: str | None = None, known: Container[tuple[str, str]] = frozenset()
) -> Iterator[IndexEntry]:
    """The jobs with a folder or ticket in the state folder, except ``known``; if given, only those called ``name``."""
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


def changes() -> object:
    """A value that changes when a job is added or removed, or the index is written. It is cheap to compute."""
    try:
        home = str(state_home())
    except StorageError:
        return None
    folders = [f"{home}/{kind}" for kind in ("jobs", "clusters")]
    places = [f"{folder}/{name}" for folder in folders for name in _names(folder)]
    seen = []
    for place in (f"{home}/{index.FILE}", f"{home}/{index.FILE}-wal", *folders, *places):
        with contextlib.suppress(OSError):
            found = os.stat(place)
            if found.st_size:  # otherwise it is a log without entries, which readers create
                seen.append((place, found.st_ino, found.st_size, found.st_mtime_ns))
    return seen


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(where: str = "1 = 1", *values: str, table: str = JOBS, columns: str = "") -> list[Any]:
    """The rows that are intact; none if the index cannot be used."""

    def read(database: sqlite3.Connection) -> list[Any]:
        found = version(database)
        name, condition, wanted = table, where, ENTRY
        if table == JOBS and found in BEFORE:
            name = BEFORE[found]
        elif table == JOBS:
            condition = f"is_listed = 1 AND {where}"
            wanted = f"{ENTRY}, {columns}" if columns else ENTRY
        if not has(database, name):
            return []  # another process is creating it
        return database.execute(f"SELECT {wanted} FROM {name} WHERE {condition}", values).fetchall()

    rows = index.read(read, "only jobs with a folder or a ticket on this machine are found")
    return [row for row in rows or () if is_whole(*row[:3])]


def is_whole(name: object, platform: object, submitted_at: object) -> bool:
    """Whether these values form an entry. A row may be damaged."""
    return isinstance(name, str) and isinstance(platform, str) and is_number(submitted_at)
