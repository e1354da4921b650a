"""The client on Windows, as far as that can be played here: it submits to SageMaker, and runs nothing itself."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
from systems.played import commands_on


def test_a_job_from_its_dry_run_to_its_download(moto: str, tmp_path: Path) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="bucket")
    (tmp_path / "src" / "lib").mkdir(parents=True)
    (tmp_path / "src" / "train.py").write_bytes(b"print('training')\r\n")
    (tmp_path / "src" / "lib" / "a.py").write_text("a = 1")
    (tmp_path / "job.yaml").write_text(
        "entry_point: train.py\nsource_dir: src\nrole: arn:aws:iam::123456789012:role/Train\n"
        "image_uri: 123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1\ninstance_type: ml.m5.xlarge\n"
        "output_path: s3://bucket/out\ncode_location: s3://bucket/code\nruntime: cloudtrain\n"
        "checkpoint_local_path: /opt/ml/elsewhere\ncheckpoint_s3_uri: s3://bucket/checkpoints\n",
        encoding="utf-8",
    )
    s3.put_object(Bucket="bucket", Key="out/a-job/output/model.tar.gz", Body=b"model")
    submit = ["submit", "job.yaml", "--name", "a-job"]
    about = ["a-job", "--platform", "sagemaker"]
    dry, submitted, described, listed, logs, metrics, waited, downloaded, checkpoints, cleaned = commands_on(
        "win32",
        [*submit, "--dry-run"],
        [*submit, "--no-wait"],
        ["describe", *about, "--json"],
        ["list", "--json"],
        ["logs", *about],
        ["metrics", *about, "--json"],
        ["wait", *about],
        ["download", "a-job", "--to", "got"],
        ["checkpoints", "list", "s3://bucket/checkpoints"],
        ["clean", "--caches"],
        cwd=tmp_path,
    )
    request = json.loads(dry.out)
    sent = boto3.client("sagemaker").describe_training_job(TrainingJobName="a-job")
    assert request["HyperParameters"] == sent["HyperParameters"]
    assert request["Environment"]["CLOUDTRAIN_CHECKPOINT_URI"] == "file:///opt/ml/elsewhere"
    assert (submitted.code, submitted.out) == (0, "a-job\n"), submitted
    assert json.loads(described.out)["platform"] == "sagemaker"
    assert [job["name"] for job in json.loads(listed.out)] == ["a-job"]
    assert [ended.code for ended in (logs, metrics, waited, downloaded, checkpoints, cleaned)] == [0] * 6
    assert (tmp_path / "got" / "model.tar.gz").read_bytes() == b"model"


def test_what_runs_on_this_machine_is_refused(moto: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('training')")
    local, container, server = commands_on(
        "win32",
        ["submit", "train.py"],
        ["submit", "train.py", "--set", "image_uri=python:3.12", "--dry-run"],
        ["s3", "start"],
        cwd=tmp_path,
    )
    for ended, what in (
        (local, "platform local"),
        (container, "platform container"),
        (server, "embedded S3 server"),
    ):
        assert ended.code == 1
        assert ended.err.startswith(f"the {what} does not run on Windows")
        assert "WSL" in ended.err
