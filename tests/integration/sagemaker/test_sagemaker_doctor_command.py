"""``cloudtrain doctor``, ``--check`` and ``--dry-run`` for a job on SageMaker: nothing is written to the account."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

CLOUDTRAIN = str(Path(sys.executable).parent / "cloudtrain")
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5.1-cpu-py311"
JOB = f"""
entry_point: train.py
source_dir: source
platform: sagemaker
image_uri: {IMAGE}
instance_type: ml.m5.large
role: arn:aws:iam::123456789012:role/Trainer
inputs: {{train: s3://data/train}}
output_path: s3://data/out
"""

pytestmark = pytest.mark.usefixtures("moto")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("import torch, no_such_module\n")
    (tmp_path / "job.yaml").write_text(JOB)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="train/part-0", Body=b"1")
    return tmp_path


def run(*arguments: str, cwd: Path) -> tuple[int, Any]:
    done = subprocess.run(
        [CLOUDTRAIN, *arguments], cwd=cwd, stdout=subprocess.PIPE, text=True, timeout=120, check=False
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("command", [("doctor", "job.yaml"), ("submit", "job.yaml", "--check")])
def test_the_checks_of_a_job(folder: Path, command: tuple[str, ...]) -> None:
    code, found = run(*command, "--json", cwd=folder)
    outcomes = {check["name"]: check["outcome"] for check in found}
    assert code == 1
    for name in ("credentials", "bucket data", "input train", "request", "source"):
        assert outcomes[name] == "ok", name
    # moto has no such role; and no image of AWS's accounts, which might only be hidden
    assert {name for name, outcome in outcomes.items() if outcome == "failed"} == {
        *("role", "role: trust", "role: pass"),
    }
    assert (outcomes["image"], outcomes["imports"]) == ("warning", "warning")
    [imports] = [check["what"] for check in found if check["name"] == "imports"]
    assert "no_such_module" in imports and "torch" not in imports.replace("pytorch", "")


def test_nothing_is_written(folder: Path) -> None:
    run("doctor", "job.yaml", "--json", cwd=folder)
    code, request = run("submit", "job.yaml", "--dry-run", cwd=folder)
    assert (code, request["RoleArn"]) == (0, "arn:aws:iam::123456789012:role/Trainer")
    s3 = boto3.client("s3")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["data"]
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="data")["Contents"]] == ["train/part-0"]
    assert boto3.client("sagemaker").list_training_jobs()["TrainingJobSummaries"] == []
