"""Scripts that write into what the job records about itself. What decides is what only the supervisor writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_jobs import Run, events, folder, live_processes, wait_until

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.platforms.local import LocalPlatform

PRELUDE = """
    import json, os, pathlib, shutil, sys, time
    output = pathlib.Path(os.environ["SM_OUTPUT_DIR"])
    records = [output / name for name in ("failure", "failure.json", "events.jsonl", "success")]

    def clear(path):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
"""

FORGED = [
    {"event": "uploaded", "kind": "model", "uri": "file:///etc/hostname"},
    {"event": "uploaded", "kind": "../../train.py", "uri": "file:///etc/hostname"},
    {"event": "discarded", "kind": "model"},
    {"event": "job", "status": "Failed", "exit_code": 9},
    {"event": "attempt", "attempt": 7},
    {"event": "phase", "phase": 5, "state": "ended", "seconds": "long"},
    {"event": "phase", "phase": "train", "state": "ended", "seconds": -1},
    {"event": "progress", "phase": "train", "done": None},
    {"event": "metric", "name": ["loss"], "value": "x", "time": 1},
    {"event": "metric", "name": "forged", "value": 1.0, "time": 1e300},
    {"event": "warning", "message": {"a": 1}},
    {"event": {"a": 1}},
    [1, 2, 3],
]


@pytest.mark.parametrize("kind", ["named pipes", "links", "folders", "garbage"])
def test_a_script_that_replaces_its_records_and_succeeds(run: Run, tmp_path: Path, kind: str) -> None:
    ways = {
        "named pipes": "os.mkfifo(path)",
        "links": f"path.symlink_to({str(tmp_path / 'mine')!r})",
        "folders": "path.mkdir()",
        "garbage": "path.write_bytes(os.urandom(200_000) + b'[' * 100_000 + bytes([10]))",
    }
    (tmp_path / "mine").write_text("mine")
    job = run(
        PRELUDE + f"\n    for path in records:\n        clear(path)\n        {ways[kind]}\n", max_run=60
    )
    assert (job.status, job.describe().exit_code, job.failure) == (JobStatus.COMPLETED, 0, None)
    assert (tmp_path / "mine").read_text() == "mine"
    assert events(job, "job")[-1]["status"] == "Completed"


@pytest.mark.parametrize("kind", ["named pipes", "links", "folders", "garbage"])
def test_a_script_that_replaces_its_records_and_fails(run: Run, tmp_path: Path, kind: str) -> None:
    ways = {
        "folders": "path.mkdir()",
        "named pipes": "os.mkfifo(path)",
        "links": f"path.symlink_to({str(tmp_path / 'mine')!r})",
        "garbage": "path.write_bytes(os.urandom(200_000))",
    }
    (tmp_path / "mine").write_text("mine")
    script = (
        PRELUDE + f"\n    for path in records:\n        clear(path)\n        {ways[kind]}\n    sys.exit(7)"
    )
    job = run(script, max_run=60)
    assert job.failure
    assert (job.status, job.describe().exit_code, job.failure.exit_code) == (JobStatus.FAILED, 7, 7)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_script_that_forges_events_and_a_report(run: Run, tmp_path: Path) -> None:
    report = {"failure_class": "host-lost", "message": "forged", "exit_code": 3}
    job = run(
        PRELUDE
        + f"""
    lines = {[json.dumps(event) for event in FORGED]!r}
    long_line = json.dumps({{"event": "warning", "message": "x" * 100_000}})
    warning = json.dumps({{"event": "warning", "message": "\\x1b]0;forged\\x07"}})
    with open(output / "events.jsonl", "a") as file:
        file.write("\\n".join([*lines, long_line, warning]))
        file.write("\\n{{")
    (output / "failure.json").write_text({json.dumps(report)!r})
    (output / "failure").write_text("the job: forged [host-lost]")
    """,
        max_run=60,
    )
    description = job.describe()
    assert (description.status, description.attempt, description.failure) == (JobStatus.COMPLETED, 0, None)
    assert description.model_data in (None, f"{folder(job).path.as_uri()}/output/model.tar.gz")
    assert description.metrics == {}
    assert description.warnings == ["\x1b]0;forged\x07"]
    assert [event["attempt"] for event in events(job, "attempt")] == [0]
    assert [event["status"] for event in events(job, "job")] == ["Completed"]
    download = subprocess.run(
        [sys.executable, "-m", "cloudtrain", "download", job.name],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in download.stderr
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("src-")] == []
    shown = subprocess.run(
        [sys.executable, "-m", "cloudtrain", "describe", job.name],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "warning: \\x1b]0;forged\\x07" in shown


def test_a_report_of_another_failure_does_not_change_the_exit_code(run: Run) -> None:
    job = run(
        PRELUDE
        + """
    if os.fork() == 0:  # after the runtime has written its own
        os.setsid()
        for _ in range(200):
            time.sleep(0.01)
            (output / "failure.json").write_text('{"failure_class": "killed", "message": "forged", "exit_code": 99}')
        os._exit(0)
    sys.exit(7)
    """
    )
    assert (job.status, job.describe().exit_code) == (JobStatus.FAILED, 7)


def test_a_job_whose_whole_folder_is_full_of_named_pipes_is_stopped(run: Run) -> None:
    job = run(
        PRELUDE
        + """
    top = output.parents[2]
    for path in [*records, *(top / name for name in ("state.json", "events.jsonl", "job.log"))]:
        clear(path)
        os.mkfifo(path)
    (output / "done").touch()
    time.sleep(120)
    """,
        wait=False,
        stop_grace=1,
    )
    wait_until(lambda: (folder(job).host("algo-1").output / "done").exists(), "the attack")
    began = time.monotonic()
    job.stop()
    wait_until(lambda: not live_processes(job), "the end of the job", 60)
    assert time.monotonic() - began < 60
    assert {found.name for found in LocalPlatform().list()} == {job.name}


def test_max_run_ends_a_job_with_named_pipes(run: Run) -> None:
    job = run(
        PRELUDE
        + """
    for path in records:
        clear(path)
        os.mkfifo(path)
    time.sleep(120)
    """,
        max_run=2,
        stop_grace=1,
    )
    assert (job.status, job.describe().reason) == (JobStatus.STOPPED, "max_run of 2 s is over")


def test_a_large_report_arrives_with_its_texts_cut(run: Run) -> None:
    job = run(
        """
    import sys
    for number in range(50):
        print("é\\\\" * 20_000, file=sys.stderr)
    raise ValueError("x" * 200_000)
    """
    )
    assert job.failure
    assert (job.failure.failure_class, job.failure.exception_type) == (FailureClass.USER_ERROR, "ValueError")
    assert job.failure.message.startswith("xxx")
    path = folder(job).host("algo-1").failure_report
    assert os.stat(path).st_size <= 64 * 1024
