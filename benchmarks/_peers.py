"""The peers of the benchmarks, each with a pinned version in a separate environment.

Requirements of one peer must not slow down or break another.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from _common import peer_python

REPOSITORY = Path(__file__).parents[1]

SAGEMAKER_2 = "sagemaker==2.257.7"
SAGEMAKER_3 = "sagemaker==3.27.0"
KUBEFLOW = "kubeflow==0.5.0"
S3TORCHCONNECTOR = "s3torchconnector==1.5.0"
SAGEMAKER_TRAINING = "sagemaker-training==5.1.4"
SUBMITIT = "submitit==1.5.4"
TORCH = "torch==2.13.0"
TORCHX = "torchx==0.7.0"


def sagemaker_2() -> Path:
    """The interpreter that has the SageMaker SDK, version 2; `packing.py` uses the same environment."""
    return peer_python("sagemaker2", [SAGEMAKER_2])


def sagemaker_3() -> Path:
    """The interpreter that has the SageMaker SDK, version 3 (130 packages, 1 GB)."""
    return peer_python("sagemaker3", [SAGEMAKER_3])


def sagemaker_training() -> Path:
    """The interpreter that has SageMaker's training toolkit, and mpi4py, through which it starts scripts."""
    return peer_python("sagemaker_training", [SAGEMAKER_TRAINING, "mpi4py==4.1.2"])


def submitit() -> Path:
    """The interpreter that has submitit."""
    return peer_python("submitit", [SUBMITIT])


def torchx() -> Path:
    """The interpreter that has torchx, and torch, which its ``dist.ddp`` starts with ``torchrun``."""
    return peer_python("torchx", [TORCHX, TORCH])


def checkpoints() -> Path:
    """The interpreter with packages that write a state to S3: Amazon's writer for DCP, safetensors and boto3."""
    extra = S3TORCHCONNECTOR.replace("==", "[dcp]==")
    return peer_python("checkpoint", [TORCH, extra, "boto3==1.44.5", "safetensors==0.8.0", "numpy==2.4.6"])


def kubeflow() -> Path:
    """The interpreter that has Kubeflow's SDK."""
    return peer_python("kubeflow", [KUBEFLOW])


@cache
def cloudtrain(*, torch: bool = True) -> Path:
    """The interpreter that has this working tree's cloudtrain, installed like a user's, and torch unless it is false.

    Not the developer's editable install: its import hook costs 10 ms in each of a job's processes.
    """
    return _installed("cloudtrain" if torch else "cloudtrain_without_torch", [TORCH] if torch else [])


@cache
def cloudtrain_for_kubernetes() -> Path:
    """The interpreter that has this working tree's cloudtrain, with what its platform Kubernetes needs."""
    return _installed("cloudtrain_kubernetes", _setup()["options.extras_require"]["kubernetes"].split())


def _setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    return setup


def _installed(name: str, extra: Sequence[str]) -> Path:
    """The interpreter that has this working tree's cloudtrain and ``extra``."""
    needed = _setup()["options"]["install_requires"].strip().splitlines()
    python = peer_python(name, [*needed, *extra])
    with tempfile.TemporaryDirectory() as scratch:
        # a copy, to keep build files out of the working tree
        for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, scratch)
        shutil.copytree(REPOSITORY / "cloudtrain", Path(scratch, "cloudtrain"))
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        subprocess.run([*pip, scratch], check=True)
    return python
