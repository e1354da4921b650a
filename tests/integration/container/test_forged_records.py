"""Containers that forge the record of their job: nothing decides about it but what the supervisor writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from container_jobs import folder_of, jobs_in, wait_for_end
from engine_daemon import Engine

from cloudtrain import JobStatus

FORGES = """
    import json, os, pathlib
    output = pathlib.Path("/opt/ml/output")
    forged = [
        {"event": "uploaded", "kind": "model", "uri": "file:///etc/hostname"},
        {"event": "uploaded", "kind": "output", "uri": "file://%(mine)s"},
        {"event": "discarded", "kind": "model"},
        {"event": "job", "status": "Failed", "exit_code": 9},
        {"event": "attempt", "attempt": 7},
        {"event": "metric", "name": 5, "value": "x"},
        {"event": "warning", "message": "\\x1b[2Jforged"},
    ]
    with open(output / "events.jsonl", "a") as file:
        file.write("".join(json.dumps(event) + "\\n" for event in forged) + "[" * 100_000)
    (output / "failure.json").write_text('{"failure_class": "killed", "message": "forged", "exit_code": 9}')
    (output / "failure").write_text("the job: forged [killed]")
    pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("weights")
"""
BLOCKS = """
    import os, pathlib
    output = pathlib.Path("/opt/ml/output")
    for name in ("failure", "failure.json", "events.jsonl", "success"):
        (output / name).unlink(missing_ok=True)
        os.mkfifo(output / name)
    %(end)s
"""


def test_a_container_cannot_forge_the_record_of_its_job(engine: Engine, tmp_path: Path) -> None:
    mine = tmp_path / "train.py"
    mine.write_text("my own")
    with jobs_in(engine, tmp_path) as jobs:
        forges = jobs.start(FORGES % {"mine": mine})
        succeeds = jobs.start(BLOCKS % {"end": "pass"})
        fails = jobs.start(BLOCKS % {"end": "raise SystemExit(7)"})
        waits = jobs.start(BLOCKS % {"end": "import time; time.sleep(300)"}, max_run=5, stop_grace=1)
        described = {name: wait_for_end(job).describe() for name, job in
                     {"forges": forges, "succeeds": succeeds, "fails": fails, "waits": waits}.items()}  # fmt: skip
        assert {name: (found.status, found.exit_code) for name, found in described.items()} == {
            "forges": (JobStatus.COMPLETED, 0),
            "succeeds": (JobStatus.COMPLETED, 0),
            "fails": (JobStatus.FAILED, 7),
            "waits": (JobStatus.STOPPED, 143),
        }
        found = described["forges"]
        uri = f"{folder_of(forges).path.as_uri()}/output"
        assert (found.model_data, found.output_data) == (f"{uri}/model.tar.gz", None)
        assert (found.attempt, found.failure, found.metrics) == (0, None, {})
        assert list(found.warnings) == ["\x1b[2Jforged"]
        target = tmp_path / "target"
        done = subprocess.run(
            [sys.executable, "-m", "cloudtrain", "download", forges.name, "--to", str(target), "--json"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout) == [str(target / "model.tar.gz")]
        assert mine.read_text() == "my own"
