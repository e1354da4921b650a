"""The job's name, ranks, hyperparameters and folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudtrain.contract import Paths, Settings, host_hyperparameters, read_document, user_hyperparameters
from cloudtrain.contract.rank import LauncherEnv, with_rank
from cloudtrain.errors import NotFound


def in_job() -> bool:
    """Whether a cloudtrain or SageMaker runtime started this process."""
    return "SM_CURRENT_HOST" in os.environ


def job_name() -> str | None:
    """The name of the job; None outside a job."""
    return os.environ.get("SAGEMAKER_JOB_NAME")


def rank() -> int:
    """This process's rank: of ``torch.distributed`` if it is initialized, else of any launcher; 0 outside a job."""
    group = process_group()
    if group is not None:
        return group[0]
    environ = with_rank(os.environ)
    return int(environ.get(LauncherEnv.detect(environ).rank, 0))


def world_size() -> int:
    """The number of ranks; 1 outside a job."""
    group = process_group()
    if group is not None:
        return group[1]
    environ = with_rank(os.environ)
    return int(environ.get(LauncherEnv.detect(environ).size, 1))


def process_group() -> tuple[int, int] | None:
    """Rank and world size of ``torch.distributed``, if the script has initialized it. Does not import torch."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def hyperparameters() -> dict[str, Any]:
    """The job's hyperparameters as Python values; empty outside a job."""
    paths = Paths.from_environ()
    document = read_document(paths.input_config / "hyperparameters.json", {})
    return user_hyperparameters(host_hyperparameters(document, paths)) if in_job() else {}


def channel(name: str, default: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the channel's data.

    Args:
        default: the folder to use if the job does not have this channel, or outside a job.

    Raises:
        NotFound: the job does not have this channel, and ``default`` is not given.
    """
    folder = os.environ.get(f"SM_CHANNEL_{name.upper()}", default)
    if folder is None:
        known = os.environ.get("SM_CHANNELS", "none, because this process does not run in a job")
        raise NotFound(
            f"channel {name!r} is not an input of this job",
            hint=f"Channels: {known}. Add the channel to the job's inputs, or pass a default.",
        )
    return Path(folder)


def model_dir() -> Path:
    """The folder to save the model in, created if necessary. ``./model`` outside a job."""
    return _created(Path(os.environ.get("SM_MODEL_DIR", "model")))


def output_data_dir() -> Path:
    """The folder to save other outputs in, created if necessary. ``./output`` outside a job."""
    return _created(Path(os.environ.get("SM_OUTPUT_DATA_DIR", "output")))


def checkpoint_uri() -> str | None:
    """The URI of this job's checkpoints; None outside a job."""
    if not in_job():
        return None
    return Settings.from_environ().checkpoint_uri or Paths.from_environ().checkpoints.absolute().as_uri()


def _created(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


_may_exit: Callable[[], bool] | None = None


def set_exit_policy(may_exit: Callable[[], bool] | None) -> None:
    """Decide when `exit_if_preempted` exits.

    Args:
        may_exit: returns True on a rank that has saved because of the notice; if ranks save together, on all of them at
            the same step. None restores the default: rank 0 exits as soon as it has a notice, which ends the others.
    """
    global _may_exit
    _may_exit = may_exit


def may_exit(noticed: bool) -> bool:
    """Whether this rank may exit now; ``noticed`` is whether it has a notice."""
    return _may_exit() if _may_exit is not None else noticed and rank() == 0


_is_told_to_end = False


def tell_to_end() -> None:
    """Record that SIGTERM has arrived, which does not end this process by itself."""
    global _is_told_to_end
    _is_told_to_end = True


def is_told_to_end() -> bool:
    """Whether SIGTERM has arrived. A notice may arrive before it."""
    return _is_told_to_end
