"""The variables by which Weights & Biases, MLflow and Comet recognise a job, with one identity for all attempts.

A script that logs to one of them continues its run after a retry or a preemption. Each rank has its own run, because
ranks that share one would overwrite each other's values. The runs of a job are in one group.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping

from cloudtrain._system.patterns import pattern

RUN_ID = "CLOUDTRAIN_RUN_ID"
"""The variable with the identity of the job, without the rank."""
ATTEMPT_ID = "CLOUDTRAIN_ATTEMPT_ID"
"""The variable with the identity of the attempt, the same on all ranks."""

TRACKER_VARIABLES = (
    "WANDB_RUN_ID",
    "WANDB_RESUME",
    "WANDB_RUN_GROUP",
    "WANDB_NAME",
    "MLFLOW_RUN_NAME",
    "MLFLOW_RUN_CONTEXT",
    "MLFLOW_RUN_ID",
    "COMET_EXPERIMENT_KEY",
)
"""The names of all variables of `tracker_variables`."""

TRAINER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
TRAINER_CA_FILE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TRAINER_TOKEN_FILE = "KUBEFLOW_TRAINER_SERVER_TOKEN"
"""The variables for the server to which a Hugging Face Trainer reports its progress: Kubeflow Trainer (its proposal
2779), or cloudtrain's runtime."""

RUN_TAG, ATTEMPT_TAG, RANK_TAG = "cloudtrain.run_id", "cloudtrain.attempt", "cloudtrain.rank"
"""Tags of MLflow's runs: the identity of the job, the attempt that began the run, and the rank."""

KEPT_FOLDERS = ("tensorboard", "wandb")
"""Folders in ``output/`` that are uploaded during the job."""

_NO_RUNS: Mapping[str, str] = {}
_GENERATED = pattern(r"-\d{8}-\d{6}-[a-z0-9]{4}$")
"""The unique end of a job name that cloudtrain generated."""


def new_run_id(job_name: str, submitted_at: float) -> str:
    """The identity of a job on a platform where a later job may have the same name.

    Args:
        submitted_at: in seconds since the epoch.
    """
    if _GENERATED.search(job_name):
        return job_name
    return f"{job_name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(submitted_at))}"


def tracker_variables(
    job_name: str, run_id: str, part: str, attempt: int, mlflow_runs: Mapping[str, str] = _NO_RUNS
) -> dict[str, str]:
    """The variables of one rank.

    Args:
        part: the name of the rank in the job, such as ``rank1``; empty for rank 0.
        mlflow_runs: the runs of earlier attempts on an MLflow server, by `RANK_TAG`: the server chooses their IDs.
    """
    own_id, name = "-".join(filter(None, [run_id, part])), "-".join(filter(None, [job_name, part]))
    rank = part or "rank0"
    tags = {
        "mlflow.runName": name,
        "cloudtrain.job": job_name,
        RUN_TAG: run_id,
        RANK_TAG: rank,
        ATTEMPT_TAG: str(attempt),
    }
    return {
        "WANDB_RUN_ID": own_id,  # W&B accepts all characters of a job name
        "WANDB_RESUME": "allow",
        "WANDB_RUN_GROUP": job_name,
        "WANDB_NAME": name,
        "MLFLOW_RUN_NAME": name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
        **({"MLFLOW_RUN_ID": mlflow_runs[rank]} if rank in mlflow_runs else {}),
        # 32 to 50 letters and digits, like the result of comet_ml.get_experiment_key(own_id)
        "COMET_EXPERIMENT_KEY": hashlib.sha1(own_id.encode()).hexdigest(),
    }


def wants_mlflow_run(environ: Mapping[str, str]) -> bool:
    """Whether the user requests that each attempt continue the run that an earlier one began on an MLflow server."""
    return environ.get("MLFLOW_RUN_ID") == "auto"


def without_auto(environ: Mapping[str, str]) -> Mapping[str, str]:
    """``environ`` without the request of `wants_mlflow_run`, which MLflow would interpret as the ID of a run."""
    if not wants_mlflow_run(environ):
        return environ
    return {name: value for name, value in environ.items() if name != "MLFLOW_RUN_ID"}


def without_empty(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without empty variables of trackers. Users disable variables that way, but trackers reject them."""
    return {name: value for name, value in environ.items() if value or name not in TRACKER_VARIABLES}


def without_outer_job(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without the variables of this rank's job, for another job that the rank starts."""
    if RUN_ID not in environ:
        return dict(environ)
    own = (RUN_ID, *TRACKER_VARIABLES, TRAINER_URL, TRAINER_CA_FILE, TRAINER_TOKEN_FILE)
    return {name: value for name, value in environ.items() if name not in own}
