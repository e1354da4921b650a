"""The local modes of both SageMaker SDKs: a script with two containers for each, and their requirements."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

# without AWS: code and output are on this machine
ENVIRONMENT: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

VERSION_2 = """
import os, sys
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession

session = LocalSession()
session.config = {"local": {"local_code": True}}
Estimator(
    sys.argv[1],
    "arn:aws:iam::123456789012:role/role",
    instance_count=2,
    instance_type="local",
    entry_point="train.py",
    source_dir=os.getcwd(),
    output_path="file://" + os.getcwd() + "/out",
    sagemaker_session=session,
).fit()
"""

VERSION_3 = """
import os, sys
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train.model_trainer import Mode, ModelTrainer

ModelTrainer(
    training_mode=Mode.LOCAL_CONTAINER,
    sagemaker_session=Session(),
    role="arn:aws:iam::123456789012:role/role",
    source_code=SourceCode(source_dir=os.getcwd(), entry_script="train.py"),
    compute=Compute(instance_type="local_cpu", instance_count=2),
    training_image=sys.argv[1],
    local_container_root=os.getcwd() + "/out",
).train()
"""


def has_compose() -> bool:
    """Whether ``docker-compose``, version 2, is installed, which both need."""
    return shutil.which("docker-compose") is not None


def write_scripts(folder: Path) -> None:
    """Write ``version_2.py`` and ``version_3.py`` next to the ``train.py`` that they run."""
    (folder / "out").mkdir()
    (folder / "version_2.py").write_text(VERSION_2)
    (folder / "version_3.py").write_text(VERSION_3)
