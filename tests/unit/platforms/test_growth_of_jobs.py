"""The cost of looking at jobs: it grows neither with their events, nor much with their number."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from audit import opened_files
from click.testing import CliRunner

from cloudtrain import history
from cloudtrain.cli.jobs import metrics
from cloudtrain.cli.list import command
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.index import IndexEntry, add_job, list_jobs
from cloudtrain.observe import EventLog
from cloudtrain.platforms import JobDescription
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import state_home

REQUEST: dict[str, Any] = {
    "settings": {"git_commit": "abc", "output_uri": "file:///out"},
    "channels": {},
    "environment": {},
}
FAILURE = FailureReport(FailureClass.USER_ERROR, "boom", rank=1, host="algo-1", exception_type="ValueError")


def make_job(name: str, **changes: Any) -> JobFolder:
    folder = JobFolder.of("local", name)
    folder.path.mkdir(parents=True)
    (folder.path / "request.json").write_text(json.dumps(REQUEST))
    values = {"submitted_at": 1.0, "started_at": 2.0, "ended_at": 5.0, "exit_code": 0, **changes}
    folder.write_record(JobRecord(values.pop("status", JobStatus.COMPLETED), **values))
    return folder


def add_metrics(folder: JobFolder, count: int, first: int = 0) -> None:
    with open(folder.events, "a") as file:
        for number in range(first, first + count):
            event = {"time": number, "source": "a", "event": "metric", "name": "loss", "value": number}
            file.write(json.dumps(event) + "\n")


class CountingPlatform(LocalPlatform):
    """Counts the bytes that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        root: Any = self._root
        for name in ("read", "read_part"):
            setattr(root, name, self._counted(getattr(root, name)))

    def _counted(self, read: Any) -> Any:
        def counted(*arguments: Any) -> bytes:
            data: bytes = read(*arguments)
            self.bytes += len(data)
            return data

        return counted


def test_a_look_reads_only_the_events_since_the_last_one() -> None:
    """With a million metrics, each look cost 5 s and 1 GB."""
    folder = make_job("job", status=JobStatus.RUNNING, ended_at=None)
    platform = CountingPlatform()
    lock = folder.lock()
    add_metrics(folder, 20_000)
    assert platform.describe("job").metrics == {"loss": 19_999}
    assert platform.bytes > 1_000_000
    for look in range(3):
        platform.bytes = 0
        add_metrics(folder, 10, 20_000 + 10 * look)
        assert CountingPlatform().describe("job").metrics == {"loss": 20_009 + 10 * look}
        platform.describe("job")
        trend = platform.summary("job").series["loss"]
        assert trend[-1][1] <= 20_009 + 10 * look
        assert platform.bytes < 20_000
    assert lock is not None
    os.close(lock)


def test_a_look_takes_bounded_memory() -> None:
    import tracemalloc

    folder = make_job("job")
    add_metrics(folder, 100_000)
    tracemalloc.start()
    try:
        LocalPlatform().describe("job")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert folder.events.stat().st_size > 7_000_000
    assert peak < 12_000_000  # a part of 1 MiB as bytes, as text and as lines


def test_a_look_after_the_events_were_replaced_starts_again() -> None:
    folder = make_job("job", ended_at=time.time())
    add_metrics(folder, 1000)
    platform = LocalPlatform()
    assert platform.describe("job").metrics == {"loss": 999}
    folder.events.write_text("")
    add_metrics(folder, 500)
    assert platform.describe("job").metrics == {"loss": 499}
    folder.events.unlink()
    assert platform.describe("job").metrics == {}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": "x"}', b"\xff", b"null"])
def test_a_damaged_summary_is_made_again(damage: bytes) -> None:
    folder = make_job("job", status=JobStatus.FAILED, exit_code=1, failure=FAILURE)
    add_metrics(folder, 1000)
    before = LocalPlatform().describe("job")
    assert before.failure == FAILURE
    for name in ("summary.json", "description.json"):
        (folder.path / name).write_bytes(damage)
    assert LocalPlatform().describe("job") == before
    assert LocalPlatform().describe("job") == before


def test_a_torn_event_is_read_when_it_is_complete() -> None:
    folder = make_job("job", ended_at=time.time())
    add_metrics(folder, 1000)
    whole = folder.events.read_text()
    folder.events.write_text(whole[:-5])
    assert LocalPlatform().describe("job").metrics == {"loss": 998}
    folder.events.write_text(whole)
    assert LocalPlatform().describe("job").metrics == {"loss": 999}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "metric"},
        {"event": "metric", "name": [], "value": 1},
        {"event": "metric", "name": "x", "value": "high"},
        {"event": "phase", "phase": "train"},
        {"event": "phase", "phase": "train", "state": "ended", "seconds": "long"},
        {"event": "uploaded", "kind": {}, "uri": "s3://a"},
        {"event": "uploaded", "kind": "model", "uri": 7},
        {"event": "warning", "message": None},
        {"event": []},
        {},
        [],
        "x" * 200_000,
    ],
)
def test_an_event_of_any_form_harms_no_look(event: object) -> None:
    folder = make_job("job")
    folder.events.write_text(json.dumps(event) + "\n")
    add_metrics(folder, 1)
    described = LocalPlatform().describe("job")
    assert described.metrics == {"loss": 0}
    assert described.model_data is None


def test_a_job_that_ended_long_ago_is_described_from_two_files(tmp_path: Path) -> None:
    folder = make_job("job", status=JobStatus.FAILED, exit_code=1, failure=FAILURE)
    EventLog(folder.events, "algo-1").emit("uploaded", kind="model", uri="file:///elsewhere")
    add_metrics(folder, 1000)
    first = LocalPlatform().describe("job")
    with opened_files() as opened:
        assert LocalPlatform().describe("job") == first
    assert sorted(Path(path).name for path in opened) == ["description.json", "state.json"]
    folder.write_record(JobRecord(JobStatus.COMPLETED, submitted_at=7.0, ended_at=8.0))
    assert LocalPlatform().describe("job").submitted_at == 7.0


def test_a_job_that_has_just_ended_is_looked_at_again() -> None:
    folder = make_job("job", ended_at=time.time())
    assert LocalPlatform().describe("job").model_data is None
    EventLog(folder.events, "algo-1").emit("uploaded", kind="model", uri="file:///elsewhere")
    assert LocalPlatform().describe("job").model_data == "file:///out/model.tar.gz"


def test_the_history_reads_one_file_of_each_job_that_was_submitted_here() -> None:
    """Before supervisors wrote the results of a job into its record, each took its request and all its events."""
    metrics = {"loss": (0.5, 0.25, math.inf)}
    for name in ("here", "elsewhere"):
        folder = make_job(name, metrics=metrics, cost=1.5, currency="EUR", exit_code=0)
        add_metrics(folder, 10)
    facts = {"instance_count": 1, "script": "train.py", "git_commit": "def"}
    add_job(IndexEntry("here", "local", 1.0), facts, {"lr": "0.1"})
    with opened_files() as opened:
        found = {job.name: job for job in history.query("loss == 0.5")}
    read = {
        path.removeprefix(f"{state_home()}/jobs/local/")
        for path in map(str, opened)
        if "/jobs/local/" in path
    }
    assert read == {"here/state.json", "elsewhere/state.json", "elsewhere/request.json"}
    assert {job.metrics["loss"] for job in found.values()} == {(0.5, 0.25, None)}
    assert {(job.cost, job.currency, job.exit_code) for job in found.values()} == {(1.5, "EUR", 0)}
    assert (found["here"].parameters, found["here"].git_commit) == ({"lr": "0.1"}, "def")
    assert found["elsewhere"].git_commit == "abc"


def test_many_jobs_are_listed_from_their_records_and_later_from_the_index() -> None:
    jobs = 50
    for number in range(jobs):
        make_job(f"job-{number}", status=JobStatus.FAILED, exit_code=1, failure=FAILURE)
        add_job(IndexEntry(f"job-{number}", "local", float(number)))
    arguments = ["-n", str(jobs)]
    looks = []
    for files in ({"state.json", "request.json"}, set[str]()):
        with opened_files() as opened:
            looks.append(CliRunner().invoke(command, arguments))
        assert {Path(path).name for path in opened if "/jobs/local/" in path} == files
    assert looks[0].exit_code == looks[1].exit_code == 0, looks[1].exception
    assert sorted(looks[0].stdout.splitlines()) == sorted(looks[1].stdout.splitlines())
    assert len(looks[1].stdout.splitlines()) == jobs + 1
    assert looks[1].stdout.count("rank 1 on algo-1 raised ValueError: boom") == jobs


def list_rows(jobs: int) -> dict[str, list[str]]:
    listed = CliRunner().invoke(command, ["-n", str(jobs)])
    assert listed.exit_code == 0, listed.exception
    return {line.split()[0]: line.split()[1:] for line in listed.stdout.splitlines()[1:]}


@pytest.fixture
def listed_jobs() -> int:
    """So many jobs have ended, and were listed."""
    jobs = 12
    for number in range(jobs):
        make_job(f"job-{number}", submitted_at=float(number))
        add_job(IndexEntry(f"job-{number}", "local", float(number)))
    assert {row[1] for row in list_rows(jobs).values()} == {"Completed"}
    return jobs


def test_a_list_shows_what_happened_to_jobs_since_the_last_one(listed_jobs: int) -> None:
    make_job("running", status=JobStatus.RUNNING, ended_at=None)
    lock = JobFolder.of("local", "running").lock()
    assert lock is not None
    JobFolder.of("local", "job-3").write_record(JobRecord(JobStatus.STOPPED, submitted_at=3.0, ended_at=8.0))
    shutil.rmtree(JobFolder.of("local", "job-4").path)
    JobFolder.of("local", "job-5").path.joinpath("state.json").write_text("{")
    rows = list_rows(listed_jobs + 1)
    assert [rows[name][1] for name in ("running", "job-3", "job-4", "job-5", "job-6")] == [
        "Running", "Stopped", "Unknown", "Failed", "Completed",
    ]  # fmt: skip
    JobFolder.of("local", "running").stop_mark.touch()
    assert list_rows(listed_jobs + 1)["running"][1] == "Stopping"
    os.close(lock)
    assert list_rows(listed_jobs + 1)["running"][1] == "Stopped"


def test_a_list_survives_damage_of_what_it_keeps(listed_jobs: int) -> None:
    columns = ("status", "started_at", "ended_at", "why", "record", "is_whole")
    with sqlite3.connect(state_home() / "index.db") as database:
        for number, column in enumerate(columns):
            for place, value in enumerate((b"", "x", b"\xff", float("inf"))):
                name = f"job-{(number * 4 + place) % listed_jobs}"
                database.execute(f"UPDATE history SET {column} = ? WHERE name = ?", (value, name))
    assert {row[1] for row in list_rows(listed_jobs).values()} == {"Completed"}


def test_a_list_needs_no_space_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    make_job("job-1")
    monkeypatch.setattr("cloudtrain.history.ends.keep_in", full)
    assert {row[1] for row in list_rows(3).values()} == {"Completed"}


def test_a_later_submission_counts_and_damaged_rows_do_not(listed_jobs: int) -> None:
    add_job(IndexEntry("job-0", "local", 1e6))
    assert [entry.name for entry in list_jobs(3)] == [
        "job-0",
        f"job-{listed_jobs - 1}",
        f"job-{listed_jobs - 2}",
    ]
    assert len(list_jobs()) == listed_jobs


def test_the_table_cuts_no_name_and_wraps_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    from cloudtrain.cli._job_table import show_jobs

    why = " ".join(["because"] * 40) + "\x1b[2J"
    job = JobDescription("n" * 63, "local", JobStatus.STOPPED, 1.0, 2.0, 4.5, reason=why)
    show_jobs([(job.name, "local", job), ("other", "spool", PlatformError("the scheduler is offline"))])
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["JOB", "PLATFORM", "STATUS", "SUBMITTED", "TOOK", "WHY"]
    assert rows[0].startswith(f"{'n' * 63}  local     Stopped  ")
    assert "2.5 s" in rows[0]
    assert "\x1b" not in "".join(rows)
    assert " ".join(rows).count("because") == 40
    assert max(map(len, rows)) <= 200
    assert rows[-1].split() == ["other", "spool", "Unknown", "the", "scheduler", "is", "offline"]


def test_showing_metrics_costs_little_for_each() -> None:
    count, calls = 2000, 0

    def add_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    folder = make_job("job")
    with open(folder.events, "a") as file:
        for number in range(count):
            event = {"time": 1.0, "source": "a", "event": "metric", "name": f"m{number}", "value": number}
            file.write(json.dumps(event) + "\n")
    add_job(IndexEntry("job", "local", 1.0))
    sys.setprofile(add_call)
    shown = CliRunner().invoke(metrics, ["job"])
    sys.setprofile(None)
    assert calls < 120 * count, calls  # a table of rich takes 2,000 for each
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert len(lines) == count + 1
    assert lines[0].split() == ["METRIC", "LAST", "MIN", "MAX", "VALUES", "OVER", "TIME"]
    assert lines[8].split() == ["m7", "7", "7", "7", "1", "▁"]
