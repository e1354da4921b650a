"""How jobs ended: the first client that sees an end writes it into the index, where it is read instead of records."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import CloudtrainError
from cloudtrain.history.outlines import UNSETTLED
from cloudtrain.history.parameters import facts_of_request, owner, plain
from cloudtrain.history.past_job import MetricRange, PastJob
from cloudtrain.history.predictions import prediction
from cloudtrain.index import database as index, found_in_state, insert, set_parameters
from cloudtrain.index.schema import JOBS
from cloudtrain.platforms import JobDescription, Platform, Requests
from cloudtrain.platforms.base import cost_so_far
from cloudtrain.runtime.supervisor.record import DAMAGED

_TIMES = ("submitted_at", "started_at", "ended_at", "seen_at")
_OF_LOOKS = (*_TIMES, "status", "attempt", "exit_code", "reason", "failure", "why")
"""The columns that each look overwrites."""
_COSTS = ("cost", "currency", "plan_error", "plan_cost_error")
_FACTS = (*_COSTS, "git_commit", "script", "instance_type", "instance_count")
"""The columns that keep their values if a look does not find new ones."""
COLUMNS = ("owner", *_OF_LOOKS, *_FACTS)
"""The columns of the history that are fields of `PastJob`, except for the name and the platform."""


SETTLED_SECONDS = 60.0
"""For this time after the end of a job, hosts may add events, and a platform may correct how the job ended."""
NAMES = 500
"""The most names of jobs in one query, of which SQLite takes at most 999 values."""


@dataclass(frozen=True)
class Seen:
    """The result of a look at a job."""

    job: PastJob
    record: str
    """The result of `record_of` for the job before the look."""
    is_whole: bool
    """Whether it includes parameters and metrics."""


def outline(description: JobDescription) -> PastJob:
    """A past job with the fields that its description provides."""
    failure = description.failure
    return PastJob(
        plain(description.name),
        plain(description.platform),
        JobStatus(description.status).value,
        description.submitted_at,
        started_at=description.started_at,
        ended_at=description.ended_at,
        attempt=description.attempt,
        exit_code=description.exit_code,
        reason=plain(description.reason),
        failure=FailureClass(failure.failure_class).value if failure else "",
        why=plain(why_of(description)),
        git_commit=description.git_commit,
        seen_at=description.looked_at or time.time(),
        cost=description.cost.amount if description.cost else None,
        currency=description.cost.currency if description.cost else None,
        metrics={plain(name): _range(description, name) for name in description.metrics},
    )


def why_of(description: JobDescription) -> str:
    """The reason why a job failed or ended early; for a job whose record is damaged, also what to do."""
    failure = description.failure
    if failure is None:
        return description.reason
    return f"{failure.summary()}. {failure.hint}" if description.reason else failure.summary()


def look(platform: Platform, description: JobDescription, record: str, *, has_request: bool = False) -> Seen:
    """Everything that the history keeps about a job. What the description lacks is queried from the platform.

    This is the cost, and the request unless it was read for the description. The plan of the job is on this machine.

    Args:
        has_request: whether the history already has what it keeps of the request.
    """
    if not description.is_end:
        description = replace(description, cost=_quietly(lambda: cost_so_far(platform, description), None))
    job = outline(description)
    planned = _quietly(lambda: prediction(description, job.cost, job.currency), None)
    if planned:
        job = replace(job, plan_error=planned.error, plan_cost_error=planned.cost_error)
    if has_request and description.is_end:
        return Seen(job, record, is_whole=True)
    facts: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    body = description.request or description.answer
    if body is None and isinstance(platform, Requests):
        body = _quietly(lambda: platform.request(description.name).body, None)
    if body is not None:
        facts, parameters = _quietly(lambda: facts_of_request(body), (facts, parameters))
    return Seen(replace(job, **facts, parameters=parameters), record, is_whole=True)


def keep_outlines(seen: Sequence[tuple[JobDescription, str]]) -> None:
    """Keep how jobs ended, but not their parameters and metrics, which the next query reads.

    Args:
        seen: descriptions, each with the result of `record_of` for the job before it was described.
    """
    keep(
        [Seen(outline(one), record, is_whole=False) for one, record in seen if JobStatus(one.status).is_final]
    )


def _quietly(action: Any, otherwise: Any) -> Any:
    """The result of ``action``; ``otherwise`` if it raises an error that a platform or a damaged request may cause."""
    try:
        return action()
    except (CloudtrainError, OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError):
        return otherwise


def _range(description: JobDescription, name: str) -> MetricRange:
    last = description.metrics[name]
    low, high = description.metric_ranges.get(name, (last, last))
    return MetricRange(_finite(last), _finite(low), _finite(high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def keep(seen: Sequence[Seen], consequence: str = "") -> bool:
    """Write the results of looks into the index, except for jobs with damaged records. Returns whether that succeeded.

    Args:
        consequence: what the warning says about an index that cannot be written; without it, there is no warning.
    """
    return not seen or index.write(lambda database: keep_in(database, seen), consequence) is not None


def keep_in(database: sqlite3.Connection, seen: Sequence[Seen]) -> bool:
    """Like `keep`, in the given database, which has the tables of the index."""
    rows = [one for one in seen if one.job.reason != DAMAGED]
    numbers = _numbers(database, rows)
    found = [(number, one) for one in rows if (number := numbers.get((one.job.name, one.job.platform)))]
    changes = ", ".join(
        [f"{name} = ?" for name in _OF_LOOKS] + [f"{name} = COALESCE(?, {name})" for name in _FACTS]
    )
    database.executemany(
        f"UPDATE {JOBS} SET {changes}, record = ?, is_whole = ?, is_shared = 0 WHERE id = ?",
        [
            (*map(one.job.__getattribute__, (*_OF_LOOKS, *_FACTS)), _trusted(one), one.is_whole, number)
            for number, one in found
        ],
    )
    for number, one in found:
        if one.is_whole:
            set_parameters(database, number, one.job.parameters)
            database.execute("DELETE FROM metrics WHERE job = ?", (number,))
            metrics = [(number, name, *values) for name, values in one.job.metrics.items()]
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", metrics)
    return True


def _trusted(seen: Seen) -> str:
    """The record of the job; `UNSETTLED` if it has none and its end may still change."""
    job = seen.job
    is_settled = (job.seen_at or 0.0) - (job.ended_at or math.inf) >= SETTLED_SECONDS
    if seen.record or (is_settled and job.failure != FailureClass.UPLOAD):
        return seen.record
    return UNSETTLED


def _numbers(database: sqlite3.Connection, rows: Sequence[Seen]) -> dict[tuple[str, str], int]:
    """The ids of the rows of the last submissions, by name and platform. Jobs with a folder or a ticket get new rows.

    Other jobs are left out, because they may be another user's.
    """
    last = f"SELECT name, platform, max(id) FROM {JOBS} WHERE is_listed = 1"
    wanted = {(one.job.name, one.job.platform): one.job for one in rows}
    names, numbers = [name for name, _ in wanted], dict[tuple[str, str], int]()
    for start in range(0, len(names), NAMES):
        part = names[start : start + NAMES]
        sql = f"{last} AND name IN ({', '.join('?' * len(part))}) GROUP BY name, platform"
        found = database.execute(sql, part).fetchall()
        numbers.update(((name, platform), number) for name, platform, number in found)
    for (name, platform), job in wanted.items():
        if (name, platform) not in numbers and platform in {entry.platform for entry in found_in_state(name)}:
            values = {"name": name, "platform": platform, "submitted_at": job.submitted_at, "owner": owner()}
            numbers[name, platform] = insert(database, values) or 0
    return numbers
