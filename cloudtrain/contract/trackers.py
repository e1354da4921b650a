"""The variables by which Weights & Biases, MLflow and Comet recognise a job: one identity over all its attempts.

A script that logs to one of them continues its run after a retry or a preemption. Each rank has its own run, because
ranks that share one would overwrite each other's values. The runs of a job are in one group.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping

RUN_ID = "CLOUDTRAIN_RUN_ID"
"""The variable with the identity of the job, without the rank."""

TRACKER_VARIABLES = (
    "WANDB_RUN_ID",
    "WANDB_RESUME",
    "WANDB_RUN_GROUP",
    "WANDB_NAME",
    "MLFLOW_RUN_NAME",
    "MLFLOW_RUN_CONTEXT",
    "COMET_EXPERIMENT_KEY",
)
"""The names of all variables of `tracker_variables`."""

_GENERATED = re.compile(r"-\d{8}-\d{6}-[a-z0-9]{4}$")
"""The end of a job name that cloudtrain made, which is unique."""


def new_run_id(job_name: str, submitted_at: float) -> str:
    """The identity of a job on a platform where another job may have its name later.

    Args:
        submitted_at: in seconds since the epoch.
    """
    if _GENERATED.search(job_name):
        return job_name
    return f"{job_name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(submitted_at))}"


def tracker_variables(job_name: str, run_id: str, part: str, attempt: int) -> dict[str, str]:
    """The variables of one rank. Only the tags of MLflow differ between attempts.

    MLflow chooses the identities of its runs itself: each attempt has its own run, with the same name and tags.

    Args:
        part: the part of the job that the rank is, such as ``rank1``; empty for rank 0.
    """
    own_id, name = "-".join(filter(None, [run_id, part])), "-".join(filter(None, [job_name, part]))
    tags = {
        "mlflow.runName": name,
        "cloudtrain.job": job_name,
        "cloudtrain.run_id": run_id,
        "cloudtrain.attempt": str(attempt),
    }
    return {
        "WANDB_RUN_ID": own_id,  # W&B accepts all characters of a job name
        "WANDB_RESUME": "allow",
        "WANDB_RUN_GROUP": job_name,
        "WANDB_NAME": name,
        "MLFLOW_RUN_NAME": name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
        # 32 to 50 letters and digits; as comet_ml.get_experiment_key(own_id)
        "COMET_EXPERIMENT_KEY": hashlib.sha1(own_id.encode()).hexdigest(),
    }


def without_empty(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without empty variables of trackers, with which users switch them off: trackers refuse them."""
    return {name: value for name, value in environ.items() if value or name not in TRACKER_VARIABLES}


def without_outer_job(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without the variables of the job that this process is a rank of: a job that it starts is another."""
    if RUN_ID not in environ:
        return dict(environ)
    return {name: value for name, value in environ.items() if name not in (RUN_ID, *TRACKER_VARIABLES)}
