"""Exports jobs of the history, and their metrics over time, to CSV, Parquet and MLflow."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from cloudtrain._system.files import replace
from cloudtrain.contract import JobStatus
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import CloudtrainError, JobNotFound, StorageError
from cloudtrain.history.parameters import owner
from cloudtrain.history.past_job import PastJob
from cloudtrain.history.queries import query
from cloudtrain.index import to_number
from cloudtrain.platforms import Metrics, get_platform
from cloudtrain.platforms.base import Series
from cloudtrain.storage.atomic import temporary_sibling

POINTS: Mapping[str, type] = {
    **dict.fromkeys(("job", "platform"), str),
    "submitted_at": float,
    **dict.fromkeys(("owner", "metric"), str),
    "step": int,
    **dict.fromkeys(("time", "value", "min", "max"), float),
}
"""The columns of the table of metrics. Times are in seconds since the epoch."""
ROW_GROUP = 10_000
"""The number of rows of a table that are in memory at a time, and that form a row group of Parquet."""
FACTS = tuple(one.name for one in fields(PastJob) if one.name not in ("parameters", "metrics"))
MOST_METRICS, MOST_PARAMS = 1000, 100
"""The limits of a request to MLflow, according to its documentation of ``log-batch``."""
FINAL = [status.value for status in JobStatus if status.is_final]
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS")
"""Error codes with which MLflow refuses one run. Others, such as those of an unreachable server, end the export."""
BEGUN, SENT = "cloudtrain.begun", "cloudtrain.job"
"""Tags of a run whose value is the key of its job: the first is set from the beginning, the second when the run is
complete."""
LONGEST_NAME = 240
"""The most characters of the name of a metric or a parameter; MLflow accepts 250."""

Row = Mapping[str, Any]
T = TypeVar("T")


def choose(names: Sequence[str], where: str = "") -> list[PastJob]:
    """The newest job with each of these names; without names, all jobs. Raises JobNotFound, InvalidQuery."""
    jobs = query(where)
    if not names:
        return jobs
    newest = {job.name: job for job in reversed(jobs)}
    for name in names:
        if name not in newest:
            among = " among those that fulfil the condition" if where else ""
            raise JobNotFound(f"there is no job {name}{among}", hint="See them with: cloudtrain list")
    return [newest[name] for name in names]


def series_of(job: PastJob) -> Series:
    """The metrics of a job over time; none, with a warning, if they are gone, or if a later job has its name."""
    if job.owner not in ("", owner()):
        problem = f"only {job.owner} has them"
    else:
        try:
            platform = get_platform(job.platform)
            if not isinstance(platform, Metrics):
                return {}
            if platform.describe(job.name).submitted_at == job.submitted_at:
                return platform.metrics(job.name)
            problem = "there is a later job of this name"
        except CloudtrainError as error:
            problem = error.message
    warnings.warn(f"job {job.name} is exported without metrics over time: {problem}", stacklevel=2)
    return {}


def job_rows(jobs: Sequence[PastJob]) -> tuple[list[str], list[Row]]:
    """The columns and the rows of a table of jobs: facts, ``params.NAME``, ``metrics.NAME``, ``.min`` and ``.max``."""
    rows: list[Row] = []
    for job in jobs:
        row = {name: getattr(job, name) for name in FACTS}
        row.update({f"params.{name}": value for name, value in job.parameters.items()})
        for name, values in job.metrics.items():
            row[f"metrics.{name}"] = values.last
            row.update({f"metrics.{name}.min": values.min, f"metrics.{name}.max": values.max})
        rows.append(row)
    others = sorted({name for row in rows for name in row} - set(FACTS))
    return [*FACTS, *others], rows


def point_rows(jobs: Sequence[PastJob]) -> Iterator[Row]:
    """One row for each value of each metric."""
    for job in jobs:
        for metric, points in series_of(job).items():
            for point in points:
                yield {
                    "job": job.name,
                    "platform": job.platform,
                    "submitted_at": job.submitted_at,
                    "owner": job.owner,
                    "metric": metric,
                    "step": point.step,
                    "time": point.time,
                    "value": point.value,
                    "min": point.min,
                    "max": point.max,
                }


def to_table(jobs: Sequence[PastJob], path: Path) -> Path:
    """Write the table of jobs to a file, in the format of its suffix, ``.csv`` or ``.parquet``. Raises StorageError."""
    columns, rows = job_rows(jobs)
    return _write(path, columns, rows)


def to_files(jobs: Sequence[PastJob], folder: Path, kind: str) -> list[Path]:
    """Write the tables ``jobs`` and ``metrics`` into ``folder``, as files with suffix ``kind``. Raises StorageError."""
    return [
        to_table(jobs, folder / f"jobs.{kind}"),
        _write(folder / f"metrics.{kind}", [*POINTS], point_rows(jobs)),
    ]


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> Path:
    """Write a table row by row, so that only one job's metrics and a part of the rows are in memory at a time."""
    write = _parquet if path.suffix.lower() == ".parquet" else _csv
    try:
        with temporary_sibling(path) as temporary:
            write(temporary, columns, rows)
            replace(temporary, path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}", hint="Choose another place."
        ) from error
    return path


def _csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would interpret as a formula with an apostrophe, as OWASP advises."""
    is_formula = isinstance(value, str) and value[:1] in tuple("=+-@\t\r") and to_number(value) is None
    return f"'{value}" if is_formula else value


def _parquet(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CloudtrainError("Parquet needs pyarrow", hint="Run: pip install pyarrow") from None
    arrow = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    integers = ("attempt", "exit_code", "instance_count")
    numbers = ("submitted_at", "started_at", "ended_at", "seen_at", "cost", "plan_error", "plan_cost_error")

    def kind(name: str) -> type:
        if name in POINTS:
            return POINTS[name]
        return int if name in integers else float if name in numbers or name.startswith("metrics.") else str

    schema = pyarrow.schema([(name, arrow[kind(name)]) for name in columns])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for part in _parts(rows, ROW_GROUP):
            writer.write_table(pyarrow.Table.from_pylist(part, schema))


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most ``size``."""
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])


def to_mlflow(jobs: Sequence[PastJob], uri: str, experiment: str) -> list[str]:
    """Send each job as a run to an MLflow tracking server or folder, and return the ids of the runs.

    A job that was sent to the experiment before is left as it is, and one whose transfer was interrupted is completed.
    Jobs that have not ended, and those that MLflow refuses, are left out, with a warning.

    Raises CloudtrainError if MLflow is not installed, or does not answer.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise CloudtrainError(
            "the export to MLflow needs its client", hint="Run: pip install mlflow-skinny (or mlflow)"
        ) from None
    os.environ.setdefault(
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"
    )  # otherwise, an unreachable server takes minutes
    try:
        client = MlflowClient(uri)
        found = client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else client.create_experiment(experiment)
        sent = [_find(client, number, SENT, job) or _send(client, number, job) for job in _ended(jobs)]
        return [run for run in sent if run]
    except (MlflowException, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise CloudtrainError(
            f"MLflow at {uri} failed: {first}", hint="Check the URI, and that its server runs."
        ) from error


def _ended(jobs: Sequence[PastJob]) -> list[PastJob]:
    ended = [job for job in jobs if job.status in FINAL]
    if len(ended) < len(jobs):
        warnings.warn(f"jobs that have not ended are not sent: {len(jobs) - len(ended)}", stacklevel=3)
    return ended


def _key(job: PastJob) -> str:
    return f"{job.owner}/{job.platform}/{job.name}/{job.submitted_at:.3f}"


def _find(client: Any, experiment: str, tag: str, job: PastJob) -> str | None:
    """The id of the run whose tag ``tag`` is the key of the job; None if there is none."""
    key = _key(job).replace("'", "''")
    runs = client.search_runs([experiment], f"tags.`{tag}` = '{key}'")
    return str(runs[0].info.run_id) if runs else None


def _send(client: Any, experiment: str, job: PastJob) -> str | None:
    """Complete the new or interrupted run of a job. Returns its id; None, with a warning, if MLflow refuses it."""
    from mlflow.exceptions import MlflowException

    began = job.started_at or job.submitted_at
    begun = _find(client, experiment, BEGUN, job)
    run = begun or client.create_run(experiment, int(1000 * began), {BEGUN: _key(job)}, job.name).info.run_id
    try:
        _fill(client, run, job, is_begun=bool(begun))
    except MlflowException as error:
        if error.error_code not in REFUSALS:
            raise
        client.delete_run(run)
        warnings.warn(f"MLflow refuses job {job.name}: {escape_line(str(error))}", stacklevel=2)
        return None
    return str(run)


def _fill(client: Any, run: str, job: PastJob, *, is_begun: bool) -> None:
    from mlflow.entities import Metric, Param, RunTag

    facts = {name: getattr(job, name) for name in FACTS}
    tags = [
        RunTag(f"cloudtrain.{name}", str(value)) for name, value in facts.items() if value not in (None, "")
    ]
    client.log_batch(run, tags=tags)
    names = _names(job.parameters)
    params = [Param(names[name], value) for name, value in job.parameters.items()]
    for part in _parts(params, MOST_PARAMS):
        client.log_batch(run, params=part)
    series = series_of(job)
    names = _names(series)
    metrics = (
        Metric(names[name], point.value, int(1000 * point.time), place if point.step is None else point.step)
        for name, points in series.items()
        for place, point in islice(
            enumerate(points), len(client.get_metric_history(run, names[name])) if is_begun else 0, None
        )
    )
    for batch in _parts(metrics, MOST_METRICS):
        client.log_batch(run, metrics=batch)
    status = {"Completed": "FINISHED", "Failed": "FAILED"}.get(job.status, "KILLED")
    client.set_terminated(run, status, int(1000 * job.ended_at) if job.ended_at else None)
    client.set_tag(run, SENT, _key(job))  # last, because a run without it is completed by the next export


def _names(names: Iterable[str]) -> dict[str, str]:
    """A unique name in MLflow for each of these names."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        wanted = given = _name(name)
        number = 1
        while given in taken:
            number += 1
            given = f"{wanted}_{number}"
        found[name] = given
        taken.add(given)
    return found


def _name(name: str) -> str:
    """``name`` with only characters that MLflow accepts, as a relative path in its shortest form."""
    accepted = "".join(one if one.isalnum() or one in "_-. /" else "_" for one in name)
    parts = (part for part in accepted.split("/") if part.strip("."))
    return "/".join(parts).lstrip(".")[:LONGEST_NAME].rstrip("/") or "_"
