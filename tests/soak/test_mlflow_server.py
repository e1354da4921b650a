"""A job whose ranks are killed, preempted and lost is one run for each rank on a real MLflow server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, wait_for_end, wait_until, write
from slurm_cluster import free_ports
from tracker_programs import programs_of

from cloudtrain import Estimator, Job, JobStatus

SCRIPT = """
    import os, signal, time

    import mlflow

    attempt, rank = int(os.environ["CLOUDTRAIN_ATTEMPT"]), os.environ["RANK"]
    mlflow.set_experiment("digits")
    with mlflow.start_run() as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_metric("loss", attempt, step=attempt)
        with mlflow.start_run(nested=True, run_name="inner"):
            mlflow.log_metric("fold", 1)
        print("run", run.info.run_id, flush=True)
        open(f"{os.environ['SM_OUTPUT_DATA_DIR']}/{attempt}-{rank}", "w").close()
        if attempt == 0:
            while len(os.listdir(os.environ["SM_OUTPUT_DATA_DIR"])) < 2:
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        if attempt < 3:
            time.sleep(600)
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    return programs_of("mlflow>=3.17,<4")


@pytest.fixture
def server(programs: Path, tmp_path: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    database, artifacts = f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts")
    command = [str(programs / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
               "--backend-store-uri", database, "--artifacts-destination", artifacts]  # fmt: skip
    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _answers(port) or process.poll() is not None, "MLflow", 180)
        assert process.poll() is None, (tmp_path / "server.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read())
    except OSError:
        return False


@pytest.mark.timeout(900)
def test_each_rank_has_one_run_over_all_attempts(
    server: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create_experiment(server)
    write(tmp_path, "train.py", SCRIPT)
    run = write(tmp_path, "run.sh", f'#!/bin/sh\nexec {programs}/python train.py "$@"\n') / "run.sh"
    run.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    job = Estimator(
        "run.sh", source_dir=str(tmp_path), distribution=TWO_RANKS, instance_count=1, max_retry_attempts=2,
        environment={"MLFLOW_TRACKING_URI": server, "MLFLOW_RUN_ID": "auto"}, platform="local",
    ).fit(wait=False, job_name=f"tracked-{int(time.time())}")  # fmt: skip
    try:
        _wait_for(job, 1)
        job.preempt()
        _wait_for(job, 2)
        (host,) = [event for event in job.platform.events(job.name) if event["event"] == "host"][-1:]  # type: ignore[attr-defined]
        os.kill(host["pid"], signal.SIGKILL)  # a lost node
        wait_for_end(job, 300)
    finally:
        job.stop()
    assert job.status == JobStatus.COMPLETED, job.logs()
    lines = [line.split() for line in job.logs().splitlines() if "] run " in line]
    assert len(lines) == 8
    found = {rank: {line[-1] for line in lines if line[1] == f"{rank}]"} for rank in ("0", "1")}
    assert [len(ids) for ids in found.values()] == [1, 1]
    assert found["0"] != found["1"]
    (run_id,) = found["0"]
    history = _query_history(server, run_id)
    assert history == [(attempt, attempt) for attempt in range(4)]


def _create_experiment(server: str) -> None:
    """Before two ranks do so at the same time: MLflow lets one of them log to the default experiment then."""
    url, body = f"{server}/api/2.0/mlflow/experiments/create", b'{"name": "digits"}'
    urllib.request.urlopen(
        urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=60
    )


def _query_history(server: str, run_id: str) -> list[tuple[int, float]]:
    url = f"{server}/api/2.0/mlflow/metrics/get-history?run_id={run_id}&metric_key=loss"
    metrics = json.loads(urllib.request.urlopen(url, timeout=30).read())["metrics"]
    return sorted((int(one["step"]), one["value"]) for one in metrics)


def _wait_for(job: Job, attempt: int) -> None:
    """Wait until both ranks of the attempt have begun their runs."""
    wait_until(
        lambda: job.logs().count("] run ") == 2 * (attempt + 1) or job.status.is_final,
        f"attempt {attempt}",
        300,
    )
    assert not job.status.is_final, job.logs()
