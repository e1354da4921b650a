"""A job that fails, is preempted and restarts is one run for Weights & Biases, MLflow and Comet."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import Any

from local_jobs import TWO_RANKS, Run, events, folder, wait_for_end, wait_until

from cloudtrain import JobStatus

SCRIPT = """
    import json, os, sys, time

    names = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_NAME", "MLFLOW_RUN_NAME", "MLFLOW_RUN_CONTEXT",
             "COMET_EXPERIMENT_KEY", "CLOUDTRAIN_RUN_ID", "CLOUDTRAIN_ATTEMPT", "RANK")
    print("seen", json.dumps({name: os.environ.get(name) for name in names}), flush=True)
    assert os.environ["TOLD"] == "t0psecret" and sys.argv[1:] == ["--api_key", "k3yk3yk3y"]
    assert "t0psecret" not in os.environ["SM_TRAINING_ENV"] and "k3yk3yk3y" not in os.environ["SM_TRAINING_ENV"]
    attempt = int(os.environ["CLOUDTRAIN_ATTEMPT"])
    if attempt == 0:
        folder = os.environ["SM_OUTPUT_DATA_DIR"]
        open(f"{folder}/{os.environ['RANK']}", "w").close()
        while len(os.listdir(folder)) < 2:
            time.sleep(0.01)
        sys.exit(3)
    if attempt == 1:
        time.sleep(600)
"""

OWN = {"WANDB_NAME": "mine", "WANDB_RUN_GROUP": ""}


def test_every_attempt_of_a_job_has_the_same_identity(run: Run) -> None:
    job = run(
        SCRIPT,
        wait=False,
        distribution=TWO_RANKS,
        max_retry_attempts=1,
        environment={**OWN, "TOLD": "t0psecret"},
        hyperparameters={"api_key": "k3yk3yk3y"},
    )
    wait_until(lambda: job.logs().count('"CLOUDTRAIN_ATTEMPT": "1"') == 2, "the second attempt")
    job.preempt()
    wait_for_end(job)
    assert job.status == JobStatus.COMPLETED, job.logs()
    attempts: dict[str, dict[str, Any]] = {"0": {}, "1": {}, "2": {}}
    for line in job.logs().splitlines():
        if "] seen " in line:
            seen = json.loads(line.partition("] seen ")[2])
            attempts[seen.pop("CLOUDTRAIN_ATTEMPT")][seen.pop("RANK")] = seen
    for number, ranks in attempts.items():
        for seen in ranks.values():
            assert json.loads(seen.pop("MLFLOW_RUN_CONTEXT"))["cloudtrain.attempt"] == number
    assert sorted(attempts["0"]) == ["0", "1"]
    assert attempts["0"] == attempts["1"] == attempts["2"]
    first, second = attempts["0"]["0"], attempts["0"]["1"]
    assert first["CLOUDTRAIN_RUN_ID"] == first["WANDB_RUN_ID"] == second["CLOUDTRAIN_RUN_ID"]
    assert second["WANDB_RUN_ID"] == f"{first['WANDB_RUN_ID']}-rank1"
    assert (first["WANDB_RESUME"], first["MLFLOW_RUN_NAME"]) == ("allow", job.name)
    assert (first["WANDB_NAME"], first["WANDB_RUN_GROUP"]) == ("mine", None)  # the user's choice


OFFLINE = """
    import os, time

    attempt, rank = os.environ["CLOUDTRAIN_ATTEMPT"], os.environ["RANK"]
    folder = f"{os.environ['WANDB_DIR']}/wandb/offline-run-{attempt}-{os.environ['WANDB_RUN_ID']}"
    events = f"{os.environ['SM_OUTPUT_DIR']}/tensorboard"
    os.makedirs(folder)
    os.makedirs(events, exist_ok=True)
    if rank == "0":
        os.symlink(folder, f"{os.environ['WANDB_DIR']}/wandb/latest-run-{attempt}")
    with open(f"{folder}/run.wandb", "w") as one, open(f"{events}/events.{attempt}.{rank}", "w") as other:
        for step in range(6000 if attempt == "0" else 10):  # they are never at rest
            for file in (one, other):
                print(step, file=file, flush=True)
            time.sleep(0.1)
"""


def test_the_files_of_trackers_outlive_a_lost_host(run: Run) -> None:
    """A W&B run that is offline, and TensorBoard's files: those of the first attempt are uploaded while they grow."""
    job = run(
        OFFLINE,
        wait=False,
        distribution=TWO_RANKS,
        max_retry_attempts=1,
        environment={"WANDB_MODE": "offline"},
    )
    kept = folder(job).path / "output"
    first = [kept / "tensorboard" / f"events.0.{rank}" for rank in (0, 1)]
    wait_until(
        lambda: (
            all(path.exists() for path in first)
            and len(list((kept / "wandb").glob("offline-run-0-*/run.wandb"))) == 2
        ),
        "the first upload",
    )
    (host,) = events(job, "host")
    shutil.rmtree(folder(job).path / "hosts" / "algo-1" / "output" / "wandb")  # the machine is gone
    shutil.rmtree(folder(job).path / "hosts" / "algo-1" / "output" / "tensorboard")
    os.kill(host["pid"], signal.SIGKILL)
    wait_for_end(job)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert sorted(path.name for path in (kept / "tensorboard").iterdir()) == [
        "events.0.0", "events.0.1", "events.1.0", "events.1.1",
    ]  # fmt: skip
    runs = sorted((kept / "wandb").glob("offline-run-*/run.wandb"))
    assert len(runs) == 4
    ids = {path.parent.name.partition("-run-")[2][2:] for path in runs}
    assert len(ids) == 2  # one run for each rank, over both attempts
    assert runs[-1].read_text().split() == [str(step) for step in range(10)]
    assert job.describe().warnings == []
