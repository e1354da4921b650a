"""A job that fails, is preempted and restarts is one run for Weights & Biases, MLflow and Comet."""

from __future__ import annotations

import json
from typing import Any

from local_jobs import TWO_RANKS, Run, wait_for_end, wait_until

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
        time.sleep(60)
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
