"""Information for a training script about its job.

    from cloudtrain import environment

    data = environment.channel("train", default="data/train")
    torch.save(model.state_dict(), environment.model_dir() / "model.pt")

Every function also works outside a job: a plain ``python train.py`` runs unchanged.
"""

from __future__ import annotations

from cloudtrain.contract import Notice
from cloudtrain.environment._preemption import exit_if_preempted, preemption
from cloudtrain.environment.job import (
    channel,
    checkpoint_uri,
    hyperparameters,
    in_job,
    job_name,
    model_dir,
    output_data_dir,
    rank,
    world_size,
)

__all__ = [
    "Notice",
    "channel",
    "checkpoint_uri",
    "exit_if_preempted",
    "hyperparameters",
    "in_job",
    "job_name",
    "model_dir",
    "output_data_dir",
    "preemption",
    "rank",
    "world_size",
]
