"""The peers of the benchmarks, each with a pinned version in a separate environment that is created when needed.

This way, the requirements of one peer cannot slow down or break another. Each function returns an interpreter, and
raises PeerMissing if the peer cannot be installed.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from _common import PEERS, REPOSITORY, SMOKE_TEST, PeerMissing

SAGEMAKER_2 = "sagemaker==2.257.7"
SAGEMAKER_3 = "sagemaker==3.27.0"
KUBEFLOW = "kubeflow==0.5.0"
SAGEMAKER_TRAINING = "sagemaker-training==5.1.4"
SUBMITIT = "submitit==1.5.4"
TORCH = "torch==2.13.0"
TORCHX = "torchx==0.7.0"
MLFLOW = "mlflow-skinny==3.17.2"
TENSORBOARD = "tensorboard==2.21.0"
TRACKIO = "trackio==0.43.0"
WANDB = "wandb==0.31.0"
RAY_TUNE = "ray[tune]==2.60.0"

ENVIRONMENTS = {
    SAGEMAKER_2: ("sagemaker2", (SAGEMAKER_2,)),
    SAGEMAKER_3: ("sagemaker3", (SAGEMAKER_3,)),  # 130 packages, 1 GB
    # with mpi4py, with which it starts scripts
    SAGEMAKER_TRAINING: ("sagemaker_training", (SAGEMAKER_TRAINING, "mpi4py==4.1.2")),
    SUBMITIT: ("submitit", (SUBMITIT,)),
    # torchx starts `torchrun` of torch
    TORCHX: ("torchx", (TORCHX, TORCH)),
    KUBEFLOW: ("kubeflow", (KUBEFLOW,)),
    MLFLOW: ("mlflow_file_store", (MLFLOW,)),
    TENSORBOARD: ("tensorboard", (TENSORBOARD, TORCH)),
    TRACKIO: ("trackio", (TRACKIO,)),
    WANDB: ("wandb_offline", (WANDB,)),
    RAY_TUNE: ("ray-tune", (RAY_TUNE,)),
    "checkpoints": (
        "checkpoint",
        (TORCH, "s3torchconnector[dcp]==1.5.0", "boto3==1.44.5", "safetensors==0.8.0", "numpy==2.4.6"),
    ),
}
"""For each peer, the folder in `PEERS`, and the requirements to install in it."""


def peer(name: str) -> Path:
    """The interpreter of the environment of a peer, which is a key of `ENVIRONMENTS`."""
    if SMOKE_TEST in os.environ:
        raise PeerMissing("a smoke test has no peers")
    return _environment(*ENVIRONMENTS[name])


@cache
def cloudtrain(extra: str = "") -> Path:
    """The interpreter with this working tree's cloudtrain, installed as users do; in a smoke test, this interpreter.

    The developer's editable install is not used, because its import hook takes 10 ms in each process of a job.

    Args:
        extra: ``torch`` or ``kubernetes``.
    """
    if SMOKE_TEST in os.environ:
        return Path(sys.executable)
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    needed = setup["options"]["install_requires"].split()
    needed += [TORCH] if extra == "torch" else setup["options.extras_require"].get(extra, "").split()
    python = _environment(f"cloudtrain_{extra}".rstrip("_"), tuple(needed))
    with tempfile.TemporaryDirectory() as scratch:
        # a copy, to keep build files out of the working tree
        for name in ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, scratch)
        shutil.copytree(REPOSITORY / "cloudtrain", Path(scratch, "cloudtrain"))
        _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", scratch)
    return python


@cache
def _environment(name: str, requirements: tuple[str, ...]) -> Path:
    """An environment, which is created again if the requirements change or its last creation was interrupted."""
    folder = PEERS / name
    python, mark = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join(requirements) + "\n"
    if mark.is_file() and mark.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {', '.join(requirements)} into {folder}", file=sys.stderr)
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(python), "-m", "pip", "install", "--quiet", *requirements)
    mark.write_text(wanted)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
        raise PeerMissing(f"cannot be installed: {reasons[-1].strip()}")
