"""Damaged records of a job: what its supervisor keeps, and what the job says about itself."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from fuzzing import check, damaged_bytes, damaged_documents, random

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Notice
from cloudtrain.contract.ending import LARGEST_ENDING, Ending
from cloudtrain.contract.request_body import argument_details, parse_body, request_settings
from cloudtrain.index import IndexEntry, add_job, find_job, list_jobs
from cloudtrain.observe import Summary, parse_event
from cloudtrain.observe.event_lines import LONGEST, encode_event, parse_event_line
from cloudtrain.observe.events import MARK
from cloudtrain.platforms import JobDescription
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.run_folder import RankRecord, read_code
from cloudtrain.runtime.supervisor.event_summary import EventSummary
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord

REPORT = FailureReport(
    FailureClass.USER_ERROR, "bad value", "Check it.", rank=3, host="algo-2", exit_code=7, exception_type="ValueError",
    traceback="Traceback:\n  x", log_tail=("one", "two"), stacks="stack", phase="train", time=1.8e9,
)  # fmt: skip
KILLED = FailureReport(FailureClass.KILLED, "", rank=1, host="algo-1", exit_code=137, signal=9)
RECORD = JobRecord(
    JobStatus.FAILED,
    1.8e9,
    2,
    4711,
    1.8e9,
    1.8e9,
    7,
    REPORT,
    "max_run of 2 s is over",
    metrics={"loss": [0.5, 0.25, 2.0]},
    cost=1.5,
)
REQUEST: dict[str, Any] = {
    "job_name": "job",
    "host_count": 2,
    "instance_type": "local",
    "channels": {"train": {"uri": "s3://bucket/data", "TrainingInputMode": "File"}},
    "settings": {"job_name": "job", "output_uri": "s3://bucket/out", "stop_grace": 30.0, "timeline": True,
                 "metric_definitions": [["loss", "loss=(.*)"]]},
    "environment": {"A": "1", "TOKEN": "***"},
    "hyperparameters": {"lr": "0.1"},
    "max_run": 60, "max_retry_attempts": 1, "max_preemptions": 3,
    "arguments": ["--epochs", "5"],
    "instance_groups": [{"instance_group_name": "a", "instance_type": "x", "instance_count": 2}],
    "python": "/usr/bin/python",
}  # fmt: skip
EVENTS = [
    {"time": 1.8e9, "source": "algo-1", "event": "phase", "phase": "train", "state": "began"},
    {
        "time": 1.8e9,
        "source": "algo-1",
        "event": "phase",
        "phase": "train",
        "state": "ended",
        "seconds": 2.5,
        "bytes": 7,
    },
    {"time": 1.8e9, "source": "algo-1", "event": "progress", "phase": "fetch", "done": 5, "total": 9},
    {"time": 1.8e9, "source": "algo-1", "event": "metric", "name": "loss", "value": 0.5, "rank": 0},
    {
        "time": 1.8e9,
        "source": "algo-1",
        "event": "uploaded",
        "kind": "model",
        "uri": "s3://bucket/model.tar.gz",
    },
    {"time": 1.8e9, "source": "algo-1", "event": "step", "step": 100, "stalled": 0.5, "pid": 12},
    {"time": 1.8e9, "source": "algo-1", "event": "restored", "step": 90, "seconds": 0.5},
    {"time": 1.8e9, "source": "supervisor", "event": "attempt", "attempt": 1},
    {"time": 1.8e9, "source": "algo-1", "event": "warning", "message": "full"},
    {"time": 1.8e9, "source": "algo-1", "event": "host", "hosts": ["algo-1"], "attempt": 0, "pid": 3},
]


def shown(description: JobDescription) -> None:
    """Everything that commands do with a description."""
    from cloudtrain.cli._job_table import show_jobs
    from cloudtrain.cli._view import show_job
    from cloudtrain.job import Job

    json.dumps(description.to_dict(), ensure_ascii=False).encode("utf-8", "backslashreplace")
    show_jobs([(description.name, description.platform, description)])
    show_job(Job(description.name, LocalPlatform()), description)


def test_the_record_of_a_job() -> None:
    valid = [json.loads(RECORD.to_json()), json.loads(JobRecord(JobStatus.PENDING, 1.8e9).to_json())]

    def read(data: bytes) -> None:
        record = JobRecord.from_json(data)
        assert JobRecord.from_json(record.to_json()) == record
        shown(
            JobDescription(
                "job", "local", record.status, record.submitted_at, record.started_at, record.ended_at,
                record.attempt, record.exit_code, record.failure, record.reason,
            )
        )  # fmt: skip

    check("record", damaged_documents(valid, random("record")), read, ValueError)


def test_the_request_of_a_job() -> None:
    def read(data: bytes) -> None:
        body = parse_body(data)
        request_settings(body).to_environ()
        argument_details(body.get("arguments", ()))

    check("request", damaged_documents([REQUEST], random("request")), read, ValueError)


def test_the_folder_of_a_job() -> None:
    """Through the platform, which shows a damaged job instead of an error."""
    folder = JobFolder.of("local", "job")
    folder.path.mkdir(parents=True)
    files = {
        "state.json": [json.loads(RECORD.to_json())],
        "request.json": [REQUEST],
        "events.jsonl": EVENTS,
        "summary.json": [{"version": "0", "events": [1, "aa"]}],
        "description.json": [{"version": "0", "record": "x", "description": {}}],
    }
    for name, valid in files.items():
        (folder.path / name).write_text(json.dumps(valid[0]))
    choose = random("folder")
    documents = {name: damaged_documents(valid, choose) for name, valid in files.items()}
    platform = LocalPlatform()

    def read(name: str) -> None:
        path = folder.path / name
        valid = path.read_bytes()
        path.write_bytes(next(documents[name]))
        shown(platform.describe("job"))
        assert [job.name for job in platform.list()] == ["job"]
        list(platform.events("job"))
        platform.metrics("job")
        path.write_bytes(valid)

    check("folder", iter(lambda: choose.choice(list(files)), None), read)


def test_the_report_of_a_failure() -> None:
    def read(data: bytes) -> None:
        report = FailureReport.from_json(data)
        assert FailureReport.from_json(report.to_json().encode("utf-8", "backslashreplace")) == report
        report.reason()
        report.shortened(1000)

    valid = [REPORT.to_dict(), KILLED.to_dict()]
    check("report", damaged_documents(valid, random("report")), read, ValueError)


def test_the_ending_of_a_host() -> None:
    def read(data: bytes) -> None:
        assert len(Ending.from_json(data).to_json().encode()) <= LARGEST_ENDING

    ending = Ending(
        JobStatus.FAILED,
        REPORT,
        {"train": 2.5},
        {"loss": 0.5},
        {"goodput": 0.5, "wall": 2.0, "productive": 1.0, "lost": {"start": 1.0}, "measured_by": "steps"},
        ("full",),
        {"model": "s3://bucket/model.tar.gz"},
    )
    valid = [ending.to_dict(), Ending(JobStatus.COMPLETED).to_dict()]
    check("ending", damaged_documents(valid, random("ending")), read, ValueError)


def test_the_reason_of_a_failure() -> None:
    choose = random("reason")
    texts = (damaged_bytes(choose.choice((REPORT, KILLED)).reason().encode(), choose) for _ in iter(int, 1))
    check("reason", texts, lambda data: FailureReport.from_reason(data.decode("utf-8", "replace")))


def test_the_events_of_a_job() -> None:
    summary = Summary()

    def read(data: bytes) -> None:
        EventSummary().update(lambda position: data[position:]).meter.result(1.0, 2.0, 3.0)
        try:
            event = parse_event(data)
        except ValueError:
            assert parse_event_line(MARK.encode() + data, "host", 1.0) is None
            return
        parse_event_line(MARK.encode() + data, "host", 1.0)
        assert len(encode_event(event)) <= LONGEST
        summary.add(event)
        Summary.from_dict(json.loads(json.dumps(summary.to_dict())))

    check("events", damaged_documents(EVENTS, random("events")), read)


def test_the_record_of_a_rank(tmp_path: Path) -> None:
    valid = [
        vars(RankRecord(12, 0)),
        vars(RankRecord(12, 0, 1, "ValueError", "bad", "Traceback:", 1.8e9, True)),
    ]

    def read(data: bytes) -> None:
        (tmp_path / "rank-0.json").write_bytes(data)
        (tmp_path / "rank-0.code").write_bytes(data)
        RankRecord.read(str(tmp_path), 0)
        read_code(str(tmp_path), 0)

    check("rank-record", damaged_documents(valid, random("rank-record")), read)


def test_the_notice_of_a_preemption(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        (tmp_path / "preemption").write_bytes(data)
        Notice.read(tmp_path)

    check("notice", damaged_documents([{"deadline": 1.8e9, "reason": "spot"}], random("notice")), read)


def test_the_index_of_jobs() -> None:
    path = Path(os.environ["CLOUDTRAIN_HOME"]) / "index.db"
    for number in range(3):
        add_job(IndexEntry(f"job-{number}", "local", 1.8e9))
    valid = path.read_bytes()
    choose = random("index")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        find_job("job-1")
        list_jobs()

    check("index", (damaged_bytes(valid, choose) for _ in iter(int, 1)), read)


def test_rows_of_the_index_of_other_types_are_left_out() -> None:
    path = Path(os.environ["CLOUDTRAIN_HOME"]) / "index.db"
    add_job(IndexEntry("good", "local", 1.8e9))
    rows = (
        (None, "local", 1.0),
        (b"\xff", "local", 1.0),
        ("a", 5.5, 1.0),
        ("b", "local", "late"),
        ("c", None, None),
    )
    with sqlite3.connect(path) as database:
        for row in rows:
            database.execute(
                "INSERT OR IGNORE INTO history (name, platform, submitted_at) VALUES (?, ?, ?)", row
            )
        database.execute(
            "INSERT INTO history (name, platform, submitted_at) VALUES (CAST(x'ff' AS TEXT), 'local', 1)"
        )
    assert {entry.name for entry in list_jobs()} == {"good", "a", "\ufffd"}
    assert find_job("good")
    assert find_job("b") is None
