"""Progress, metrics and samples of a running job, from the lines of its runtime in CloudWatch Logs."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest
from scripted_job import REGION
from service import SageMakerService, ServiceError
from training_requests import request, training_request

from cloudtrain._display.view import look_at
from cloudtrain.observe.event_lines import encode_event
from cloudtrain.platforms import Metrics, Summaries
from cloudtrain.platforms.sagemaker import SageMakerPlatform, events
from cloudtrain.platforms.sagemaker.logs import GROUP
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL

SOURCE = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/runtime/1/"}
OURS: dict[str, Any] = {
    "InputDataConfig": [{"ChannelName": RUNTIME_CHANNEL, "DataSource": {"S3DataSource": SOURCE}}]
}
"""The channel of cloudtrain's runtime."""


def said(at: float, event: str, **fields: Any) -> str:
    return (
        encode_event({"time": at, "source": "x", "event": event, **fields}, is_opaque=True).decode().rstrip()
    )


def steps(began: float) -> list[str]:
    return [
        "[rank 0] an ordinary line",
        *(said(began + step, "step", step=step, total=100, stalled=0.0) for step in range(1, 31)),
        *(said(began + step, "metric", name="loss", value=1 / step, step=step) for step in (1, 2, 4)),
        said(began + 30, "warning", message="the disk is slow"),
        said(began + 30, "sample", seconds=10.0, cpu=3.0, memory=1 << 30),
    ]


@pytest.mark.parametrize("name", ["a-job", "a-job-10"])
def test_the_events_of_a_job_are_read_from_moto(moto: str, name: str) -> None:
    client, logs = (boto3.client(service, region_name=REGION) for service in ("sagemaker", "logs"))
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    client.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/train",
        OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        ResourceConfig=resources,
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        **OURS,
    )
    began = time.time() - 60
    logs.create_log_group(logGroupName=GROUP)
    printed = {
        f"{name}/algo-1-1700000001": steps(began),
        f"{name}/algo-2-1700000001": [said(began + 30, "sample", seconds=10.0, cpu=4.0)],
        f"{name}/algo-10-1700000001": [said(began + 30, "step", step=99, total=100, stalled=0.0)],
    }
    for stream, lines in printed.items():
        logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
        found = [{"timestamp": int(1000 * (began + 30)), "message": line} for line in lines]
        logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=found)
    platform = SageMakerPlatform()
    view = look_at(platform, name)
    description = view.description
    assert (description.step, description.total_steps, description.metrics["loss"]) == (30, 100, 0.25)
    assert description.metric_ranges == {"loss": (0.25, 1.0)} and description.warnings == ["the disk is slow"]
    assert [point.value for point in view.series["loss"]] == [1.0, 0.5, 0.25]
    assert {host: [sample.cpu for sample in found] for host, found in view.samples.items()} == {
        "algo-1": [3.0],
        "algo-2": [4.0],
    }
    assert [*platform.logs(name)] == ["[rank 0] an ordinary line"]
    assert isinstance(platform, Metrics) and [*platform.metrics(name)] == ["loss"]


@pytest.fixture
def running(platform: SageMakerPlatform, service: SageMakerService) -> SageMakerPlatform:
    platform.aws.client("sagemaker").create_training_job(**training_request("a-job", **OURS))
    service.jobs["a-job"].enter("Training")
    return platform


def test_new_events_are_read_once_and_a_restart_is_an_attempt(
    running: SageMakerPlatform, service: SageMakerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FRESH_SECONDS", 0.0)
    assert isinstance(running, Summaries)
    job, began = service.jobs["a-job"], time.time() - 100
    job.log("algo-1", said(began, "step", step=10, total=100, stalled=0.0))
    assert running.describe("a-job").progress == 0.1
    assert len(running.summary("a-job").course.attempts) == 1
    job.log("algo-1", said(began + 50, "step", step=5, total=100, stalled=0.0), stream=2)
    summary = running.summary("a-job")
    assert len(summary.course.attempts) == 2 and running.describe("a-job").step == 5
    reads = [
        given for operation, given in service.calls if operation == "GetLogEvents" and "nextToken" in given
    ]
    assert reads, "the second look continues where the first has ended"


def test_a_job_is_described_without_the_right_to_read_logs(
    running: SageMakerPlatform, service: SageMakerService
) -> None:
    service.jobs["a-job"].log("algo-1", said(time.time(), "step", step=10, total=100, stalled=0.0))
    service.fail("DescribeLogStreams", *[ServiceError("AccessDeniedException", "no")] * 2)
    view = look_at(running, "a-job")
    assert view.description.step is None and view.summary is None


def test_amazons_toolkit_prints_no_events(platform: SageMakerPlatform, service: SageMakerService) -> None:
    platform.submit(request("a-job"))
    service.jobs["a-job"].enter("Training")
    service.jobs["a-job"].log("algo-1", said(time.time(), "step", step=10, total=100, stalled=0.0))
    calls = len(service.calls)
    assert platform.describe("a-job").step is None
    assert not any("Log" in operation for operation, _ in service.calls[calls:])
