"""Logs, events and metrics of real jobs, through a real API server and the kubelets of the tests."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace

from cloudtrain import Estimator
from cloudtrain.contract import JobStatus
from cloudtrain.job import Job

SCRIPT = """
import os, pathlib, sys, time
rank, print_ = os.environ["RANK"], lambda line: print(line, flush=True)
for step in range(int(sys.argv[1])):
    print_(f"step {step} loss={1 / (step + 1)}")
    time.sleep(float(sys.argv[2]))
while sys.argv[3:] and not os.path.exists(sys.argv[3]):
    time.sleep(0.05)
print_('[cloudtrain:event] {"event": "job", "status": "Failed"}')
print_("x" * 40_000)
sys.stdout.buffer.write(b"no end \\xff")
"""


def submit(folder: Path, *arguments: str, **options: Any) -> Job:
    (folder / "train.py").write_text(SCRIPT)
    estimator = Estimator(
        str(folder / "train.py"),
        platform="kubernetes",
        image_uri="python:3.12",
        instance_count=2,
        distribution={"processes": {"processes_per_host": 1}},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.e-]+)"}],
        platform_options={"discard_outputs": True, **options},
        arguments=list(arguments),
    )
    return estimator.fit(wait=False)


def follow(job: Job, lines: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: lines.extend(job.follow()), daemon=True)
    thread.start()
    return thread


def check(lines: list[str], steps: int) -> None:
    """Each line of both ranks once, and in order."""
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        wanted = [f"[rank {rank}] step {step} loss={1 / (step + 1)}" for step in range(steps)]
        assert mine[:-3] == wanted
        assert mine[-3] == f'[rank {rank}] [cloudtrain:event] {{"event": "job", "status": "Failed"}}'
        assert mine[-2:] == [f"[rank {rank}] {'x' * 40_000}", f"[rank {rank}] no end \\xff"]
    others = [line for line in lines if not line.startswith("[rank ")]
    assert not [line for line in others if "[cloudtrain:event]" in line]


def test_a_job_is_followed(kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before its pods start, through faults, to its end; with its metrics, while it runs and later."""
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.logs.FRESH_SECONDS", 0.2)
    faults = kubernetes.proxy.faults
    faults.refuse(r"GET .*/pods/.*/log", 503, 2)
    faults.refuse(r"GET .*/pods/.*/log", 429, 2, retry_after=0)
    signals = kubernetes.claim("signals")
    job = submit(tmp_path, "20", "0.1", "/signals/seen", volumes=["signals:/signals"])
    lines: list[str] = []
    thread = follow(job, lines)
    deadline = time.monotonic() + 60
    while not (running := job.describe()).metrics:
        assert time.monotonic() < deadline, (running, lines)
        time.sleep(0.3)
    assert (running.status, running.phase) == (JobStatus.RUNNING, "train")
    assert set(running.phases) >= {"launch"} and running.goodput is not None
    (signals / "seen").touch()
    thread.join(60)
    assert not thread.is_alive()
    check(lines, 20)
    assert sorted(job.logs().splitlines()) == sorted(lines)
    events = list(job.platform.events(job.name))  # type: ignore[attr-defined]
    assert [events[0]["event"], events[1]["event"]] == ["attempt", "host"]
    assert {event["source"] for event in events} == {f"{job.name}-0"}
    series = job.platform.metrics(job.name)["loss"]  # type: ignore[attr-defined]
    assert series[0][1] == 1.0 and series[-1][1] == 0.05 and 2 <= len(series) < 20
    ended = job.describe()
    assert (ended.status, ended.metrics) == (JobStatus.COMPLETED, {"loss": 0.05})
    lists = [request for request in kubernetes.proxy.requests if "watch=true" not in request]
    for plural in ("jobs", "events"):  # and then watches
        assert sum(f"/{plural}?" in request for request in lists) <= 2, lists
    shown = subprocess.run(["cloudtrain", "logs", job.name], capture_output=True, text=True, check=True)
    assert "[rank 1] step 19 loss=0.05\n" in shown.stdout


@pytest.mark.soak
def test_the_api_server_restarts_in_the_middle(kubernetes: Namespace, tmp_path: Path) -> None:
    job = submit(tmp_path, "300", "0.1")
    lines: list[str] = []
    thread = follow(job, lines)
    kubernetes.wait_for_line(f"{job.name}-0", "step 30 ")
    server = kubernetes.server
    server.stop_apiserver()
    time.sleep(2)
    server.start_apiserver()
    server.wait()
    thread.join(150)
    assert not thread.is_alive()
    check(lines, 300)
