"""Metrics of real jobs: values that scripts log with ``cloudtrain.log``."""

from __future__ import annotations

import json
import math

from click.testing import CliRunner
from local_jobs import Run

from cloudtrain.cli.jobs import metrics
from cloudtrain.contract import JobStatus
from cloudtrain.platforms import Metrics

KILLED_ONCE = """
    import os, pathlib, signal, time

    import cloudtrain

    rank, attempt = int(os.environ["RANK"]), int(os.environ["CLOUDTRAIN_ATTEMPT"])
    folder = pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"])
    for step in range(11 if attempt else 1, 31):  # as if it had restored the checkpoint of step 10
        cloudtrain.log({"val/accuracy": step / 30} if rank == 0 and step % 10 == 0 else None,
                       step=step, loss=rank + 10 * attempt)
        if step == 15 and attempt == 0:
            time.sleep(3)  # the values are written every second
            (folder / str(rank)).touch()
            while len(list(folder.iterdir())) < 2 or rank:
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_steps_that_a_restart_repeats_replace_the_lost_ones(run: Run) -> None:
    job = run(KILLED_ONCE, distribution={"processes": {"processes_per_host": 2}}, max_retry_attempts=1)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert isinstance(job.platform, Metrics)
    found = job.platform.metrics(job.name)
    points = {point.step: point for point in found["loss"]}
    assert [point.step for point in found["loss"]] == list(range(1, 31))
    assert [points[step].value for step in (5, 10, 11, 15, 20)] == [0.5, 0.5, 10.5, 10.5, 10.5]
    assert {(point.min, point.max, point.ranks) for point in found["loss"]} == {(0, 1, 2), (10, 11, 2)}
    assert [(point.step, point.slowest) for point in found["val/accuracy"]] == [(10, 0), (20, 0), (30, 0)]
    assert job.metrics == {"loss": 10.5, "val/accuracy": 1.0}
    shown = CliRunner().invoke(metrics, [job.name, "--json"])
    [first, *_] = json.loads(shown.output)["loss"]
    assert {"step", "min", "max", "ranks", "slowest", "lag"} < set(first)


def test_ranks_that_start_their_own_processes_can_log(run: Run) -> None:
    script = """
        import multiprocessing, os

        import cloudtrain

        def work(rank):
            os.environ["RANK"] = str(rank)
            for step in range(50):
                cloudtrain.log(step=step, loss=rank)
            import time
            time.sleep(2)

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(3) as pool:
                pool.map(work, range(3), chunksize=1)
    """
    job = run(script)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert isinstance(job.platform, Metrics)
    points = job.platform.metrics(job.name)["loss"]
    assert [(point.step, point.ranks, point.max) for point in points] == [(step, 3, 2) for step in range(50)]
    assert all(math.isclose(point.value, 1.0) for point in points)
