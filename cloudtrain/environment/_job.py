"""The job's name, ranks, hyperparameters, folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cloudtrain.contract import Paths, Settings, decode_hyperparameters, read_document, user_hyperparameters
from cloudtrain.contract.launcher_env import LauncherEnv
from cloudtrain.errors import NotFound


def in_job() -> bool:
    """Whether a cloudtrain or SageMaker runtime started this process."""
    return "SM_CURRENT_HOST" in os.environ


def job_name() -> str | None:
    return os.environ.get("SAGEMAKER_JOB_NAME")


def rank() -> int:
    """This process's rank, whatever has started it; 0 outside a job."""
    return int(os.environ.get(LauncherEnv.detect(os.environ).rank, 0))


def world_size() -> int:
    """The number of ranks; 1 outside a job."""
    return int(os.environ.get(LauncherEnv.detect(os.environ).size, 1))


def hyperparameters() -> dict[str, Any]:
    """The job's hyperparameters with their types; empty outside a job."""
    document = read_document(Paths.from_environ().input_config / "hyperparameters.json", {})
    return user_hyperparameters(decode_hyperparameters(document)) if in_job() else {}


def channel(name: str, default: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the channel's data.

    Args:
        default: the folder to take where the job has no such channel, or there is no job.

    Raises:
        NotFound: there is no such channel and no default.
    """
    folder = os.environ.get(f"SM_CHANNEL_{name.upper()}", default)
    if folder is None:
        known = os.environ.get("SM_CHANNELS", "none: this is no job")
        raise NotFound(f"channel {name!r} is not an input of this job", hint=f"Channels: {known}.")
    return Path(folder)


def model_dir() -> Path:
    """Where to save the model; made if it is not there. ``./model`` outside a job."""
    return _made(Path(os.environ.get("SM_MODEL_DIR", "model")))


def output_data_dir() -> Path:
    """Where to save anything else; made if it is not there. ``./output`` outside a job."""
    return _made(Path(os.environ.get("SM_OUTPUT_DATA_DIR", "output")))


def checkpoint_uri() -> str | None:
    """Where this job's checkpoints belong, or None where the job names no place."""
    if not in_job():
        return None
    return Settings.from_environ().checkpoint_uri or Paths.from_environ().checkpoints.absolute().as_uri()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
