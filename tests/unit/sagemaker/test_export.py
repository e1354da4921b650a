"""``cloudtrain submit --dry-run --as``: jobs for services that start them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from cloudtrain.cli.submit import command
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Request
from cloudtrain.platforms.sagemaker.export import EXPORTS, step_arguments
from cloudtrain.platforms.sagemaker.platform import SageMakerPlatform

JOB = """
platform: sagemaker
entry_point: train.py
image_uri: 123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1
instance_type: ml.m5.xlarge
instance_count: 2
role: arn:aws:iam::123456789012:role/Train
output_path: s3://my-data/out
environment: {HF_TOKEN: hf_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, STAGE: test}
secrets: [MY_KEY]
experiment_config: {ExperimentName: e, TrialComponentDisplayName: d}
"""


@pytest.fixture
def folder(aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", "t0ps3cret")
    return tmp_path


def run(*options: str) -> Result:
    return CliRunner().invoke(command, ["job.yaml", *options], catch_exceptions=True)


def printed(*options: str) -> Any:
    done = run("--dry-run", "--as", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def keys() -> list[str]:
    return [
        found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket="my-data").get("Contents", [])
    ]


def test_a_step_of_a_pipeline_is_the_request_without_what_depends_on_the_run(folder: Path) -> None:
    request = json.loads(run("--dry-run", "--name", "train").stdout)
    step = printed("pipeline-step")
    assert (step["Name"], step["Type"]) == ("train", "Training")
    found, same = step["Arguments"], {"HyperParameters", "Environment", "ExperimentConfig", "TrainingJobName"}
    assert {name: value for name, value in request.items() if name not in same} == {
        name: value for name, value in found.items() if name not in same
    }
    assert found["ExperimentConfig"] == {"TrialComponentDisplayName": "d"}
    assert set(request) - set(found) == {"TrainingJobName"}
    assert set(request["HyperParameters"]) - set(found["HyperParameters"]) == {"sagemaker_job_name"}
    left_out = {"CLOUDTRAIN_JOB_NAME", "HF_TOKEN", "MY_KEY"}
    assert set(request["Environment"]) - set(found["Environment"]) == left_out


def test_a_state_of_step_functions_names_each_run(folder: Path) -> None:
    [(name, state)] = printed("step-functions").items()
    assert name == "train"
    assert state["Type"] == "Task" and state["End"] is True
    assert state["Resource"] == "arn:aws:states:::sagemaker:createTrainingJob.sync"
    parameters = state["Parameters"]
    assert parameters.pop("TrainingJobName.$") == "States.Format('train-{}', States.UUID())"
    assert parameters == printed("pipeline-step")["Arguments"]


def test_the_name_of_a_run_is_never_too_long(folder: Path) -> None:
    [(_, state)] = printed("step-functions", "--name", 20 * "ab-" + "c").items()
    base = state["Parameters"]["TrainingJobName.$"].split("'")[1]
    assert len(base.replace("{}", 36 * "x")) <= 63 and "--" not in base


@pytest.mark.parametrize("kind", EXPORTS)
def test_secrets_are_neither_printed_nor_replaced_by_stars(folder: Path, kind: str) -> None:
    done = run("--dry-run", "--as", kind)
    for text in ("t0ps3cret", "hf_aaa", "***"):
        assert text not in done.output
    assert "HF_TOKEN, MY_KEY: left out" in done.stderr and "AWS Secrets Manager" in done.stderr


def test_the_source_is_uploaded_on_request_with_a_note_otherwise(folder: Path) -> None:
    done = run("--dry-run", "--as", "pipeline-step")
    assert "add --upload" in done.stderr and keys() == []
    done = run("--dry-run", "--as", "pipeline-step", "--upload")
    assert "add --upload" not in done.stderr
    found = json.loads(done.stdout)["Arguments"]["InputDataConfig"]
    places = [one["DataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://my-data/") for one in found]
    assert sorted(place for place in places if not any(key.startswith(place) for key in keys())) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--as", "pipeline-step"], "--as needs --dry-run"),
        (["--dry-run", "--upload"], "--upload needs --as"),
        (["--dry-run", "--as", "pipeline"], "sagemaker has no such format"),
        (["--dry-run", "--as", "pipeline-step", "--set", "platform=local"], "local has no such format"),
        (
            ["--dry-run", "--as", "pipeline-step", "--set", "platform_options.job_queue=q"],
            "platform_options.job_queue: a pipeline",
        ),
        (
            ["--dry-run", "--as", "step-functions", "--set", "hyperparameters={'a.$': 1}"],
            "HyperParameters.a.$: Step Functions takes",
        ),
    ],
)
def test_what_cannot_be_printed_is_one_error(folder: Path, options: list[str], message: str) -> None:
    done = run(*options)
    assert isinstance(done.exception, InvalidJob)
    assert message in done.exception.message and done.exception.hint


def test_a_state_is_in_the_partition_of_the_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "cn-north-1")
    request = Request("sagemaker", "a", {"TrainingJobName": "a"})
    exported, _ = SageMakerPlatform().export(request, "step-functions")
    assert exported["a"]["Resource"].startswith("arn:aws-cn:states:::")


def test_a_job_without_variables_has_no_environment() -> None:
    body = {
        "TrainingJobName": "a",
        "Environment": {"T": "***"},
        "HyperParameters": {"sagemaker_job_name": "a"},
    }
    assert step_arguments(Request("sagemaker", "a", body)) == {}
