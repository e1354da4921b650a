"""Metrics of real jobs: values that scripts log with ``cloudtrain.log``."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from click.testing import CliRunner
from local_jobs import Run, wait_for_end, wait_until

from cloudtrain import Job
from cloudtrain.cli.jobs import describe, metrics
from cloudtrain.cli.list import command as list_command
from cloudtrain.contract import JobStatus
from cloudtrain.platforms import Metrics
from cloudtrain.runtime.supervisor.folder import JobFolder

KILLED_ONCE = """
    import os, signal, time

    import cloudtrain

    rank, attempt = int(os.environ["RANK"]), int(os.environ["CLOUDTRAIN_ATTEMPT"])
    for step in range(11 if attempt else 1, 31):  # as if it had restored the checkpoint of step 10
        cloudtrain.log({"val/accuracy": step / 30} if rank == 0 and step % 10 == 0 else None,
                       step=step, loss=rank + 10 * attempt)
        if step == 15 and attempt == 0:
            while rank or not os.path.exists(os.environ["GO"]):
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def ranks_of_losses(job: Job) -> list[int]:
    """How many ranks have logged each step so far. The values are written every second."""
    assert isinstance(job.platform, Metrics)
    return [point.ranks for point in job.platform.metrics(job.name).get("loss", ())]


def test_steps_that_a_restart_repeats_replace_the_lost_ones(run: Run, tmp_path: Path) -> None:
    job = run(
        KILLED_ONCE,
        distribution={"processes": {"processes_per_host": 2}},
        max_retry_attempts=1,
        environment={"GO": str(tmp_path / "go")},
        wait=False,
    )
    wait_until(lambda: ranks_of_losses(job) == [2] * 15, "the values before the kill")
    (tmp_path / "go").touch()
    wait_for_end(job)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert isinstance(job.platform, Metrics)
    found = job.platform.metrics(job.name)
    points = {point.step: point for point in found["loss"]}
    assert [point.step for point in found["loss"]] == list(range(1, 31))
    assert [points[step].value for step in (5, 10, 11, 15, 20)] == [0.5, 0.5, 10.5, 10.5, 10.5]
    assert {(point.min, point.max, point.ranks) for point in found["loss"]} == {(0, 1, 2), (10, 11, 2)}
    assert [(point.step, point.slowest) for point in found["val/accuracy"]] == [(10, 0), (20, 0), (30, 0)]
    assert job.metrics == {"loss": 10.5, "val/accuracy": 1.0}
    assert JobFolder.of("local", job.name).read_record().metrics == {
        name: [last, *job.describe().metric_ranges[name]] for name, last in job.metrics.items()
    }
    shown = CliRunner().invoke(metrics, [job.name, "--json"])
    [first, *_] = json.loads(shown.output)["loss"]
    assert {"step", "min", "max", "ranks", "slowest", "lag"} < set(first)


def test_ranks_that_start_their_own_processes_can_log(run: Run, tmp_path: Path) -> None:
    script = """
        import multiprocessing, os, time

        import cloudtrain

        def work(rank):
            os.environ["RANK"] = str(rank)
            for step in range(50):
                cloudtrain.log(step=step, loss=rank)
            while not os.path.exists(os.environ["GO"]):
                time.sleep(0.05)

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(3) as pool:
                pool.map(work, range(3), chunksize=1)
    """
    job = run(script, wait=False, environment={"GO": str(tmp_path / "go")})
    wait_until(lambda: ranks_of_losses(job) == [3] * 50, "the values of all processes")
    (tmp_path / "go").touch()
    wait_for_end(job)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert isinstance(job.platform, Metrics)
    points = job.platform.metrics(job.name)["loss"]
    assert [(point.step, point.ranks, point.max) for point in points] == [(step, 3, 2) for step in range(50)]
    assert all(math.isclose(point.value, 1.0) for point in points)


HALFWAY = """
    import os, time

    import cloudtrain

    for step in range(1, 11):
        time.sleep(0.3)
        cloudtrain.log(step=step, total_steps=1000, loss=1)
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.1)
    cloudtrain.log(step=1000, loss=1)
"""


def test_a_running_job_shows_its_progress_and_the_remaining_time(run: Run, tmp_path: Path) -> None:
    job = run(HALFWAY, wait=False, environment={"GO": str(tmp_path / "go")})
    wait_until(lambda: job.describe().step == 10, "ten of a thousand steps")
    found = job.describe()
    assert (found.total_steps, found.progress) == (1000, 0.01)
    assert found.step_rate is not None and 0 < found.step_rate < 4
    assert found.remaining_seconds is not None and found.remaining_seconds > 100
    described = CliRunner().invoke(describe, [job.name]).output
    assert "step 10 of 1,000 (1%), " in described
    listed = CliRunner().invoke(list_command, []).output
    assert re.search(rf"{job.name} .*Running .* 1% ", listed)
    (tmp_path / "go").touch()
    wait_for_end(job)
    found = job.describe()
    assert (found.progress, found.step_rate, found.remaining_seconds) == (1.0, None, None)


TRAINER = """
    import json, os, time, urllib.request

    url, token = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], os.environ.get("KUBEFLOW_TRAINER_SERVER_TOKEN")
    if os.environ.get("RANK", "0") == "0" and token:
        for step in (10, 20):  # as transformers.integrations.KubeflowCallback does on rank 0
            metrics = {"loss": 1 / step, "current_step": step, "total_steps": 30}
            status = {"metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()]}
            headers = {"Authorization": "Bearer " + open(token).read(), "Content-Type": "application/json"}
            data = json.dumps({"trainerStatus": status}).encode()
            request = urllib.request.Request(url, data=data, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=60) as response:
                assert response.status == 200
            time.sleep(0.5)
    else:
        print("url", url)
"""


def test_the_reports_of_a_hugging_face_trainer_are_the_progress(run: Run) -> None:
    job = run(TRAINER, distribution={"processes": {"processes_per_host": 2}})
    assert job.status == JobStatus.COMPLETED, job.logs()
    found = job.describe()
    assert (found.step, found.total_steps, found.metrics) == (20, 30, {"loss": 0.05})
    assert found.goodput is not None and found.goodput.measured_by == "steps"


def test_a_trainer_that_reports_elsewhere_is_left_alone(run: Run) -> None:
    job = run(TRAINER, environment={"KUBEFLOW_TRAINER_SERVER_URL": "https://trainer.example.org/status"})
    assert "url https://trainer.example.org/status" in "\n".join(job.platform.logs(job.name))
    assert job.describe().step is None
