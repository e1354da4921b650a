"""The commands about jobs, for jobs on SageMaker."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timezone

import boto3
import pytest
from click.testing import CliRunner, Result
from scripted_job import ScriptedJob
from service import SageMakerService
from training_requests import request, training_request

from cloudtrain.cli import cli
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.platforms.sagemaker import SageMakerPlatform

DEFINITIONS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--platform", "sagemaker"])


@pytest.fixture
def job(platform: SageMakerPlatform, service: SageMakerService) -> ScriptedJob:
    platform.submit(request("a-job", EnableManagedSpotTraining=True))
    return service.jobs["a-job"]


def test_describe_shows_facts_of_sagemaker(job: ScriptedJob) -> None:
    job.enter("Training")
    job.complete(
        TrainingTimeInSeconds=1000,
        BillableTimeInSeconds=300,
        FinalMetricDataList=[{"MetricName": "loss", "Value": 0.25, "Timestamp": job.created_at}],
    )
    shown = run("describe", "a-job")
    facts = dict(line.split(None, 1) for line in shown.stdout.splitlines() if " " in line)
    assert shown.exit_code == 0
    assert facts["billable"].strip() == "300 s"
    assert facts["loss"].strip() == "0.25"
    assert "spot saving   70 %" in shown.stdout
    assert "console       https://us-east-1.console.aws.amazon.com" in shown.stdout
    printed = json.loads(run("describe", "a-job", "--json").stdout)
    assert (printed["status"], printed["details"]["billable"]) == ("Completed", "300 s")
    assert printed["cost"] == pytest.approx(0.23 * 300 / 3600)
    assert (printed["currency"], printed["price"]["date"]) == ("USD", "2026-09-24")


def test_wait_shows_the_states_once_and_the_lines(job: ScriptedJob) -> None:
    job.enter("Training", "Training image download completed")
    job.log("algo-1", "epoch 1")
    ending = threading.Timer(1.0, job.fail, ["AlgorithmError: , exit code: 3"])
    ending.start()
    shown = run("wait", "a-job")
    ending.join()
    assert shown.exit_code == 3
    assert shown.stdout == "[algo-1] epoch 1\n"
    states = [line.partition(" ")[2] for line in shown.stderr.splitlines() if line[2:3] == ":"]
    assert states == [
        "Starting: Starting the training job",
        "Training: Training image download completed",
        "Failed: Training job failed",
    ]


def test_logs_as_json_name_the_host_or_the_rank(job: ScriptedJob) -> None:
    job.log("algo-2", "hello", at=1)
    job.log("algo-2", "[rank 3] world", at=2)
    lines = [json.loads(line) for line in run("logs", "a-job", "--json").stdout.splitlines()]
    assert lines == [{"rank": None, "host": "algo-2", "line": "hello"}, {"rank": 3, "line": "world"}]


def test_stop_reaches_a_job_from_elsewhere(job: ScriptedJob) -> None:
    assert run("stop", "a-job", "--no-wait").exit_code == 0
    assert job.stopping.is_set()


def test_metrics_are_shown_as_a_table_with_a_plot(moto: str) -> None:
    algorithm = training_request("a-job")["AlgorithmSpecification"] | {"MetricDefinitions": DEFINITIONS}
    boto3.Session().client("sagemaker").create_training_job(
        **training_request("a-job", AlgorithmSpecification=algorithm)
    )
    now = datetime.now(timezone.utc).timestamp() // 60 * 60
    name = SageMakerPlatform().describe("a-job").metrics.popitem()[0]  # moto chooses the name
    data = [
        {
            "MetricName": name,
            "Dimensions": [{"Name": "TrainingJobName", "Value": "a-job"}],
            "Timestamp": datetime.fromtimestamp(now + 60 * minute, timezone.utc),
            "Value": value,
        }
        for minute, value in enumerate((1.0, 0.5))
    ]
    boto3.Session().client("cloudwatch").put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs", MetricData=data
    )
    printed = json.loads(run("metrics", "a-job", "--json").stdout)
    assert printed == {name: [{"time": now, "value": 1.0}, {"time": now + 60, "value": 0.5}]}
    row = run("metrics", "a-job").stdout.splitlines()[1]
    assert row.split() == [name, "0.5", "0.5", "1", "2", "█▁"]


def test_a_job_without_metrics_is_reported(job: ScriptedJob) -> None:
    shown = run("metrics", "a-job")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "no metrics yet" in shown.stderr


def test_jobs_of_several_platforms_are_listed(job: ScriptedJob, service: SageMakerService) -> None:
    for name, platform in (("a-job", "sagemaker"), ("forgotten", "sagemaker"), ("x", "no-such-platform")):
        add_job(IndexEntry(name, platform, job.created_at))
    shown = CliRunner().invoke(cli, ["list", "--json"])
    printed = {found["name"]: found["status"] for found in json.loads(shown.stdout)}
    assert printed == {"a-job": "Pending", "forgotten": "Unknown", "x": "Unknown"}
