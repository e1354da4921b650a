"""Queries of the history."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloudtrain.history.ends import COLUMNS, keep_in
from cloudtrain.history.expression import parse, parse_name
from cloudtrain.history.past_job import MetricRange, PastJob
from cloudtrain.history.refresh import Progress, refresh
from cloudtrain.history.shared import with_shared
from cloudtrain.history.sql import Field, Known, Sql, condition_sql, names_in, resolve, select, sort_sql
from cloudtrain.index import database as index
from cloudtrain.index.schema import JOBS, VERSION, migrate, version

SUCCESS = (0, 101)
"""``SQLITE_OK`` and ``SQLITE_DONE``."""
LARGEST_PART = 500
"""The number of jobs whose parameters and metrics are read at a time."""


def query(
    where: str = "", sort: str = "", limit: int | None = None, *, up_to_date: bool = True
) -> list[PastJob]:
    """The jobs that fulfil a condition, including those whose folders ``clean`` has removed.

    Args:
        where: the condition, such as ``loss < 0.3 and lr > 0.01``; empty for all jobs. Names are those of fields of
            jobs, parameters, and metrics for their last values; ``params.lr``, ``metrics.loss`` and ``loss.min`` are
            possible, too.
        sort: the name to sort by, in descending order if a dash precedes it; by default, the newest jobs are first.
        limit: the most jobs to return.
        up_to_date: whether to look first at the jobs that have not ended, or whose end is not in the history. If
            false, only the database is read.

    Raises:
        InvalidQuery: the condition or a name is invalid. The message gives the position.
    """
    return search(where, sort, limit, up_to_date=up_to_date).jobs


SHOWN = ("name", "platform", "status", "submitted", "duration")
"""The first columns of a table; the names in the condition and the sort key follow."""


ALL = Sql("1 = 1")
"""A condition that every job fulfils."""


@dataclass(frozen=True)
class Found:
    """The answer to a query."""

    jobs: list[PastJob]
    fields: list[Field]
    """The columns of a table of these jobs."""
    count: int
    """The number of jobs that fulfil the condition, of which ``jobs`` may be a part."""
    group: Field | None = None


def search(
    where: str = "",
    sort: str = "",
    limit: int | None = None,
    columns: Sequence[str] = (),
    *,
    up_to_date: bool = True,
    start: int = 0,
    group: str = "",
    among: Sql = ALL,
    progress: Progress | None = None,
) -> Found:
    """The jobs of `query`, and the columns of a table of them: ``columns``, or else the names in the query.

    Args:
        start: the number of jobs to skip.
        group: a name by which the jobs are sorted first.
        among: a further condition.
        progress: reports the progress of the look at jobs: see `refresh`.
    """
    condition = parse(where) if where.strip() else None  # before anything slow
    wanted = [parse_name(name, "--columns") for name in columns]
    keys = [one for one in (group, sort) if one]
    names = [parse_name(one.removeprefix("-"), "--sort") for one in keys]
    left = refresh(progress) if up_to_date else []

    def read(database: Any) -> Found:
        known = Known(*(_names(database, table) for table in ("parameters", "metrics")))
        fulfils = condition_sql(condition, known) if condition else ALL
        orders = [*(sort_sql(one, known) for one in keys), Sql("job.submitted_at DESC, job.id DESC")]
        fields = [resolve(name, known, "--columns") for name in wanted]
        if not columns:
            fields = [Field("field", name) for name in SHOWN]
            fields += [resolve(name, known) for name in (*names_in(condition), *names[-1:])]
        sql = select(f"{fulfils.text} AND {among.text}", ", ".join(order.text for order in orders))
        values = [value for part in (fulfils, among, *orders) for value in part.values]
        numbers = [number for (number,) in database.execute(sql, values).fetchall()]
        shown = numbers[start:] if limit is None else numbers[start : start + limit]
        return Found(
            _jobs(database, shown),
            [*dict.fromkeys(fields)],
            len(numbers),
            resolve(names[0], known, "--sort") if group else None,
        )

    def read_own(database: sqlite3.Connection) -> Found | None:
        return read(database) if version(database) == VERSION else None

    if index.read(version, "") not in (None, VERSION):
        index.write(version, "")  # this migrates the index
    found = with_shared(read)
    if not found and left:
        with closing(sqlite3.connect(":memory:")) as copy:
            index.read(partial(_copy, copy), "")
            migrate(copy)
            keep_in(copy, left)
            found = read(copy)
    return found or index.read(read_own, "no job of the history is found") or Found([], [], 0)


def _copy(copy: sqlite3.Connection, database: sqlite3.Connection) -> None:
    version(database)  # raises an error if a later version of cloudtrain has written it: none of it is copied
    database.backup(copy, progress=_copies)


def _copies(status: int, _left: int, _all: int) -> None:
    """Called after each step of a copy, which would otherwise wait forever for a locked index."""
    if status not in SUCCESS:
        raise sqlite3.OperationalError("database is locked")


def _names(database: Any, table: str) -> list[str]:
    return sorted(name for (name,) in database.execute(f"SELECT DISTINCT name FROM {table}").fetchall())


def _jobs(database: Any, numbers: Sequence[int]) -> list[PastJob]:
    found: dict[int, PastJob] = {}
    for start in range(0, len(numbers), LARGEST_PART):
        part = numbers[start : start + LARGEST_PART]
        places = f"({', '.join('?' * len(part))})"
        parameters: dict[int, dict[str, str]] = {number: {} for number in part}
        metrics: dict[int, dict[str, MetricRange]] = {number: {} for number in part}
        for number, name, value in database.execute(
            f"SELECT job, name, value FROM parameters WHERE job IN {places} ORDER BY name", part
        ).fetchall():
            parameters[number][name] = value
        for number, name, *values in database.execute(
            f"SELECT job, name, last, min, max FROM metrics WHERE job IN {places} ORDER BY name", part
        ).fetchall():
            metrics[number][name] = MetricRange(*values)
        columns = ", ".join(("id", "name", "platform", *COLUMNS))
        for number, name, platform, *values in database.execute(
            f"SELECT {columns} FROM {JOBS} WHERE id IN {places}", part
        ).fetchall():
            fields = {key: value for key, value in zip(COLUMNS, values, strict=True) if value is not None}
            found[number] = PastJob(
                name, platform, **fields, parameters=parameters[number], metrics=metrics[number]
            )
    return [found[number] for number in numbers]
