"""Processing jobs on SageMaker are training jobs, whose outputs have the SDK's default places."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest
from cloudtrain.sagemaker.network import NetworkConfig
from cloudtrain.sagemaker.processing import ProcessingInput, ProcessingOutput
from cloudtrain.sagemaker.sklearn.processing import SKLearnProcessor
from service import SageMakerService


def test_the_request(
    service: SageMakerService, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SAGEMAKER", "CLOUDWATCH_LOGS", "STS"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.endpoint)
    monkeypatch.chdir(tmp_path)
    Path("prepare.py").write_text("print(1)")
    processor = SKLearnProcessor(
        "1.2-1",
        "arn:aws:iam::123456789012:role/Train",
        1,
        "ml.m5.xlarge",
        max_runtime_in_seconds=600,
        sagemaker_session=boto3.Session(),
        network_config=NetworkConfig(subnets=["subnet-12345678"], security_group_ids=["sg-12345678"]),
        code_location=f"s3://{s3}/code",
        output_path=f"s3://{s3}/out",
    )
    processor.run(
        "prepare.py",
        inputs=[ProcessingInput(f"s3://{s3}/raw", "/opt/ml/processing/input")],
        outputs=[ProcessingOutput("/opt/ml/processing/train", output_name="train")],
        job_name="prepare",
        wait=False,
    )
    request = service.jobs["prepare"].request
    assert request["AlgorithmSpecification"]["TrainingImage"].endswith("sagemaker-scikit-learn:1.2-1-cpu-py3")
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert request["VpcConfig"] == {"Subnets": ["subnet-12345678"], "SecurityGroupIds": ["sg-12345678"]}
    channels = {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"] for one in request["InputDataConfig"]
    }
    assert channels["input_1"] == f"s3://{s3}/raw"
    destination = "s3://sagemaker-us-east-1-123456789012/prepare/output/train"
    assert json.loads(request["Environment"]["CLOUDTRAIN_PROCESSING"]) == {
        "command": ["python3", "prepare.py"],
        "inputs": {"input_1": "/opt/ml/processing/input"},
        "outputs": {"train": {"source": "/opt/ml/processing/train", "destination": destination}},
    }
    assert processor.latest_job is not None
    [output] = processor.latest_job.describe()["ProcessingOutputConfig"]["Outputs"]
    assert output["S3Output"]["S3Uri"] == destination
