"""Requests as `render` makes them, for what comes after it."""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms import Request


def training_request(name: str, **changes: Any) -> dict[str, Any]:
    """A small CreateTrainingJob request; ``changes`` are fields of it."""
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **changes,
    }


def request(name: str, *, secrets: dict[str, str] | None = None, **changes: Any) -> Request:
    """The same, ready to be submitted."""
    return Request("sagemaker", name, training_request(name, **changes), secrets or {})
