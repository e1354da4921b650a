"""The tables of the index, which are equal in SQLite and PostgreSQL. ``docs/guides/compare-runs.md`` describes them."""

from __future__ import annotations

import sqlite3

VERSION = 5
"""The version of the schema. Since 2, each submission has its own row, so that a failed one removes no other. Since 3,
the row contains how the job ended; since 4, the currency of its cost; since 5, the error of its plan."""
JOBS = "history"
FOUND = "found"
"""The table of jobs that a platform has listed. It was added after version 2, so it may be missing."""
BEFORE = {0: "jobs", 2: "submissions"}
"""The table of jobs in earlier versions."""
ADDED = {
    3: ("currency TEXT",),
    4: ("plan_error DOUBLE PRECISION", "plan_cost_error DOUBLE PRECISION"),
}
"""The columns that a table `JOBS` of this version or an earlier one lacks, in the order of versions."""
ENTRY = "name, platform, submitted_at"

TABLES = (
    f"""CREATE TABLE IF NOT EXISTS {JOBS} (
    id {{id}},
    name TEXT NOT NULL,
    platform TEXT NOT NULL,
    submitted_at DOUBLE PRECISION NOT NULL,
    is_listed INTEGER NOT NULL DEFAULT 1,
    owner TEXT,
    status TEXT,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    attempt INTEGER,
    exit_code INTEGER,
    reason TEXT,
    failure TEXT,
    why TEXT,
    git_commit TEXT,
    script TEXT,
    instance_type TEXT,
    instance_count INTEGER,
    cost DOUBLE PRECISION,
    currency TEXT,
    plan_error DOUBLE PRECISION,
    plan_cost_error DOUBLE PRECISION,
    seen_at DOUBLE PRECISION,
    record TEXT,
    is_whole INTEGER NOT NULL DEFAULT 0,
    is_shared INTEGER NOT NULL DEFAULT 0
)""",
    """CREATE TABLE IF NOT EXISTS parameters (
    job BIGINT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number DOUBLE PRECISION,
    PRIMARY KEY (job, name)
)""",
    """CREATE TABLE IF NOT EXISTS metrics (
    job BIGINT NOT NULL,
    name TEXT NOT NULL,
    last DOUBLE PRECISION,
    min DOUBLE PRECISION,
    max DOUBLE PRECISION,
    PRIMARY KEY (job, name)
)""",
    f"CREATE INDEX IF NOT EXISTS {JOBS}_name ON {JOBS} (name, platform)",
)
SQLITE_ID = "INTEGER PRIMARY KEY AUTOINCREMENT"


class Newer(Exception):
    """A later version of cloudtrain has written the index."""


def version(database: sqlite3.Connection) -> int:
    """The version of the schema; 0 before version 2. Raises Newer."""
    found: int = database.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise Newer
    return found


def added_since(version: int) -> list[str]:
    """The columns that a table `JOBS` of ``version`` lacks; none before version 3, because its rows are copied."""
    return [
        column for since, columns in ADDED.items() if min(ADDED) <= version <= since for column in columns
    ]


def has(database: sqlite3.Connection, table: str) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def migrate(database: sqlite3.Connection) -> None:
    """Create the tables, and copy the jobs of an earlier version. Must be called in a transaction that can write."""
    found = version(database)
    if found == VERSION:
        return
    for column in added_since(found):
        database.execute(f"ALTER TABLE {JOBS} ADD COLUMN {column}")
    for statement in TABLES:
        database.execute(statement.format(id=SQLITE_ID))
    earlier = BEFORE.get(found, "")
    if has(database, earlier):
        database.execute(
            f"INSERT INTO {JOBS} ({ENTRY}) SELECT {ENTRY} FROM {earlier} WHERE typeof(name) = 'text' "
            "AND typeof(platform) = 'text' AND typeof(submitted_at) IN ('integer', 'real') ORDER BY rowid"
        )
        database.execute(f"DROP TABLE {earlier}")
    database.execute(f"PRAGMA user_version = {VERSION}")
