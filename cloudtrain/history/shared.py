"""A history shared by a team: a PostgreSQL database with the tables of the index in the schema ``cloudtrain``.

Each client sends the jobs of its user as it has seen them, and answers queries from this database. While it is
unreachable, the client's index keeps what was not sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from cloudtrain._secrets.urls import hide_credentials
from cloudtrain.config import read_section
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.history.ends import COLUMNS
from cloudtrain.history.parameters import owner
from cloudtrain.index import database as index
from cloudtrain.index.schema import JOBS, TABLES, VERSION, added_since, version

T = TypeVar("T")

SCHEMA = "cloudtrain"
VARIABLE = "CLOUDTRAIN_HISTORY"
CONNECT_SECONDS = 3
STATEMENT_SECONDS, LOCKED_SECONDS = 8, 3
ANSWER_SECONDS = 10.0
"""After this time without an answer, the client closes the connection, because a paused server ends no statement."""
ALIVE = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Socket options with which the connection ends about ten seconds after the server's machine or network is lost."""
PART = 200
"""The most jobs that are sent in one transaction."""
_ID = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
_KEY = ("owner", "platform", "name", "submitted_at")
"""The columns that identify a job among those of a team."""
_FIELDS = ("name", "platform", *COLUMNS)


def url() -> str:
    """The URL of the shared history: ``$CLOUDTRAIN_HISTORY``, else ``history: {url: ...}`` in the config file, else "".

    Raises InvalidJob for another kind of URL.
    """
    found = os.environ.get(VARIABLE) or read_section("history").get("url") or ""
    if found and not str(found).startswith(("postgresql://", "postgres://")):
        raise InvalidJob(
            f"the URL of the shared history is not one of PostgreSQL: {found}",
            hint=f"Set {VARIABLE}, or url below history in the config file: postgresql://USER@HOST/DATABASE",
        )
    return str(found)


class Database:
    """A connection that accepts the SQL of `cloudtrain.history`, whose placeholders are question marks."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._asked_at = time.monotonic()
        self._is_over = threading.Event()

    def execute(self, sql: str, values: Sequence[object] = ()) -> Any:
        self._asked_at = time.monotonic()
        return self._connection.execute(sql.replace("?", "%s"), values)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Close the connection if a statement in the body is not answered in time, so that it raises an error."""
        line = socket.socket(fileno=os.dup(self._connection.fileno()))

        def watch() -> None:
            while not self._is_over.wait(ANSWER_SECONDS / 20):
                if time.monotonic() - self._asked_at > ANSWER_SECONDS:
                    with contextlib.suppress(OSError):  # it was closed in the meantime
                        line.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=watch, name="shared history", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            line.close()


def with_shared(action: Callable[[Database], T]) -> T | None:
    """The result of ``action`` with the shared history, after sending the news to it.

    None if no shared history is configured or, with a warning, if it cannot be used. Raises InvalidJob, and
    CloudtrainError if psycopg is not installed.
    """
    place = url()
    if not place:
        return None
    psycopg = _psycopg()
    try:
        with _connect(psycopg, place) as database:
            _send_news(database)
            return action(database)
    except psycopg.Error as error:
        reason = escape_line(hide_credentials(" ".join(str(error).split()) or type(error).__name__))
        warnings.warn(
            f"the shared history cannot be used ({reason}): only jobs of this machine are found; news are sent later",
            stacklevel=2,
        )
        return None


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise CloudtrainError(
            "the shared history needs psycopg", hint="Run: pip install 'psycopg[binary]'"
        ) from None
    return psycopg


@contextmanager
def _connect(psycopg: Any, place: str) -> Iterator[Database]:
    with psycopg.connect(place, connect_timeout=CONNECT_SECONDS, autocommit=True, **ALIVE) as connection:
        database = Database(connection)
        with database.bounded():
            database.execute(
                f"SET search_path TO {SCHEMA}; SET statement_timeout = '{STATEMENT_SECONDS}s'; "
                f"SET lock_timeout = '{LOCKED_SECONDS}s'"  # not options: poolers and URLs have their own
            )
            if database.execute("SELECT to_regclass('version')").fetchone() == (None,):
                with connection.transaction():
                    _create(database)
            (found,) = database.execute("SELECT max(version) FROM version").fetchone()
            if found < VERSION:
                with connection.transaction():
                    for column in added_since(found):
                        database.execute(f"ALTER TABLE {JOBS} ADD COLUMN IF NOT EXISTS {column}")
                    _note_version(database)
            if found > VERSION:
                raise CloudtrainError(
                    f"a later version of cloudtrain has written the shared history (version {found} of its tables)",
                    hint="Install a newer version of cloudtrain here.",
                )
            yield database


def _create(database: Database) -> None:
    database.execute(
        "SELECT pg_advisory_xact_lock(hashtext('cloudtrain.history'))"
    )  # two clients may create the table concurrently
    database.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    for statement in TABLES:
        database.execute(statement.format(id=_ID))
    database.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {JOBS}_key ON {JOBS} ({', '.join(_KEY)})")
    database.execute("CREATE TABLE IF NOT EXISTS version (version INTEGER PRIMARY KEY)")
    _note_version(database)


def _note_version(database: Database) -> None:
    database.execute("INSERT INTO version VALUES (?) ON CONFLICT DO NOTHING", (VERSION,))


def _send_news(shared: Database) -> None:
    """Send the jobs that were seen since the last transfer, and note in the index that they were sent."""
    while news := index.read(_news, "") or []:
        with shared._connection.transaction():
            for job, parameters, metrics in news:
                _send(shared, job, parameters, metrics)
        sent = [(job["id"], job["seen_at"]) for job, _, _ in news]
        if index.write(lambda database: _note(database, sent), "") is None:  # noqa: B023
            return


def _news(database: sqlite3.Connection) -> list[tuple[dict[str, Any], list[Any], list[Any]]]:
    if version(database) != VERSION:
        return []
    sql = f"SELECT id, {', '.join(_FIELDS)} FROM {JOBS} WHERE is_shared = 0 AND is_whole = 1 ORDER BY id LIMIT {PART}"
    found = []
    for row in database.execute(sql).fetchall():
        job = dict(zip(("id", *_FIELDS), row, strict=True))
        values = [
            database.execute(f"SELECT * FROM {table} WHERE job = ? ORDER BY name", (job["id"],)).fetchall()
            for table in ("parameters", "metrics")
        ]
        found.append(({**job, "owner": job["owner"] or owner()}, values[0], values[1]))
    return found


def _send(shared: Database, job: dict[str, Any], parameters: list[Any], metrics: list[Any]) -> None:
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in _FIELDS if name not in _KEY)
    places = ", ".join("?" * len(_FIELDS))
    (number,) = shared.execute(
        f"INSERT INTO {JOBS} ({', '.join(_FIELDS)}, is_whole) VALUES ({places}, 1) "
        f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {changes} RETURNING id",
        [job[name] for name in _FIELDS],
    ).fetchone()
    for table, rows in (("parameters", parameters), ("metrics", metrics)):
        shared.execute(f"DELETE FROM {table} WHERE job = ?", (number,))
        for _, *values in rows:
            shared.execute(f"INSERT INTO {table} VALUES (?{', ?' * len(values)})", (number, *values))


def _note(database: sqlite3.Connection, sent: Sequence[tuple[int, float]]) -> bool:
    sql = f"UPDATE {JOBS} SET is_shared = 1 WHERE id = ? AND seen_at = ?"  # otherwise it was seen again meanwhile
    database.executemany(sql, sent)
    return True
