"""The leader's pod sends the notifications of a job, with variables from the job's Secret that ranks do not see."""

from __future__ import annotations

from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_training import OUTPUTS, estimator

from cloudtrain.contract import JobStatus

SCRIPT = """
import os, pathlib
assert "NOTIFY_TOKEN" not in os.environ
if os.environ["RANK"] == "1":
    raise ValueError("no batches left")
"""
PROGRAM = f'printf "%s\\n%s\\n" "$CLOUDTRAIN_NOTIFICATION_TEXT" "$HOSTNAME" >> {OUTPUTS}/sent'


def test_the_leader_sends_one(kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = kubernetes.claim("outputs")
    monkeypatch.setenv("NOTIFY_TOKEN", "t0p/s3cret")
    rules = [
        {"on": "failed", "command": ["/bin/sh", "-c", PROGRAM]},
        {"webhook": "http://127.0.0.1:9/$NOTIFY_TOKEN"},
    ]
    job = estimator(tmp_path, SCRIPT, notify=rules).fit(job_name="noisy", wait=False)
    job.until_final()
    assert job.status == JobStatus.FAILED
    sent = (outputs / "sent").read_text()
    assert sent.startswith(
        "job noisy failed\nrank 1 on noisy-1 raised ValueError: no batches left  [user-error]\n"
    )
    assert sent.count("job noisy failed") == 1
    [warning] = [text for text in job.describe().warnings if "notification" in text]
    assert "(webhook)" in warning and "s3cret" not in warning + job.logs()
