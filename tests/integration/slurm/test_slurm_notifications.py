"""Notifications of jobs on a real Slurm: the batch step sends them, and holds the nodes no longer than it may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from notification_servers import Receiver
from slurm_cluster import SlurmCluster
from slurm_jobs import job_folder, queue_is_empty, submit, wait_for_end, wait_until

from cloudtrain import JobStatus
from cloudtrain.runtime.notifications.rules import HOLD_SECONDS
from cloudtrain.runtime.ports import free_port
from cloudtrain.watch.notifications import rules_of_job, send_notifications

TOKEN = "t0ken" + "/B0" * 10
SCRIPT = "import os; assert 'HOOK' not in os.environ; raise ValueError('no batches left')"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    yield tmp_path


def test_a_failure_is_sent_from_the_first_node(
    slurm: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver().up() as receiver:
        monkeypatch.setenv("HOOK", f"{receiver.url}/{TOKEN}")
        job = submit(home, SCRIPT, "noisy", nodes=1, notify=[{"webhook": "$HOOK"}])
        wait_until(lambda: receiver.posts, "the notification", 120)
        assert wait_for_end(job).status == JobStatus.FAILED
        wait_until(lambda: queue_is_empty(slurm), "the end of the batch step")
        assert rules_of_job(job, ()) and send_notifications(job, rules_of_job(job, ())) == []
    [content] = receiver.contents
    assert content["event"] == "failed" and content["platform"] == "slurm"
    assert "ValueError: no batches left" in content["summary"]
    files = [path for path in job_folder(job).rglob("*") if path.is_file()]
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_a_place_that_hangs_holds_the_nodes_for_seconds_and_the_next_client_sends(
    slurm: SlurmCluster, home: Path
) -> None:
    port = free_port()
    job = submit(home, "print('done')", "held", nodes=1, notify=[{"webhook": f"http://127.0.0.1:{port}"}])
    wait_for_end(job)
    began = time.monotonic()
    wait_until(lambda: queue_is_empty(slurm), "the end of the batch step")
    assert time.monotonic() - began < HOLD_SECONDS + 60
    warnings = job.describe().warnings
    assert any("has not arrived" in warning and "cloudtrain notify held" in warning for warning in warnings)
    with Receiver(port=port).up() as receiver:
        [result] = send_notifications(job, rules_of_job(job, ()))
    assert result.error == "" and [content["event"] for content in receiver.contents] == ["completed"]
    assert job.describe().warnings == []
