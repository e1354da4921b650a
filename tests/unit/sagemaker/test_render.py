"""A job as a request: what the golden files do not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloudtrain import Estimator, Profiler, ProfilerConfig, PyTorch
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.sagemaker.training_job import with_secrets, without_secrets
from cloudtrain.submission import Submission

ROLE = "arn:aws:iam::123456789012:role/R"
IMAGE = {"image_uri": "my:1", "instance_type": "ml.m5.xlarge", "role": ROLE}


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("print('hello')\n")
    return str(tmp_path / "train.py")


def _prepare(arguments: dict[str, Any]) -> Submission:
    return Estimator(**{**IMAGE, **arguments}).prepare(job_name="job")


def test_secrets_are_kept_apart_from_the_request(aws: None) -> None:
    request = _prepare({"environment": {"HF_TOKEN": "s3cret", "A": "1"}}).request
    assert request.body["Environment"] == {"HF_TOKEN": "***", "A": "1"}
    assert request.secrets == {"HF_TOKEN": "s3cret"}
    assert "s3cret" not in request.to_json()


@pytest.mark.parametrize("runtime", ["cloudtrain", "toolkit"])
def test_named_secrets_are_only_in_what_is_sent(
    aws: None, monkeypatch: pytest.MonkeyPatch, runtime: str, script: str
) -> None:
    monkeypatch.setenv("MY_VARIABLE", "s3cret")
    request = _prepare({"secrets": ["MY_VARIABLE"], "runtime": runtime, "entry_point": script}).request
    shown = request.body["Environment"]
    assert shown["MY_VARIABLE"] == "***" and shown["CLOUDTRAIN_HIDDEN_VARIABLES"] == "MY_VARIABLE"
    sent = with_secrets(request)["Environment"]
    assert sent == {**shown, "MY_VARIABLE": "s3cret"}
    assert "s3cret" not in request.to_json()
    assert without_secrets(sent)["MY_VARIABLE"] == "***"


def test_the_name_of_a_role_is_looked_up(aws: None) -> None:
    boto3.client("iam").create_role(RoleName="Train", Path="/team/", AssumeRolePolicyDocument="{}")
    body = _prepare({"role": "Train"}).request.body
    assert body["RoleArn"] == "arn:aws:iam::123456789012:role/team/Train"
    with pytest.raises(PlatformError, match="role NoSuchRole"):
        _prepare({"role": "NoSuchRole"})


def test_the_source_goes_where_the_output_goes(toolkit: None, script: str) -> None:
    source = _prepare({"entry_point": script, "output_path": "s3://mine/out"}).job.source
    assert source is not None
    assert source.uri == f"s3://mine/cloudtrain/source/{source.sha256}/sourcedir.tar.gz"


def test_packed_source_in_s3_is_taken_as_it_is(toolkit: None) -> None:
    submission = _prepare(
        {"entry_point": "train.py", "source_dir": "s3://mine/code.tar.gz", "output_path": "s3://mine"}
    )
    values = submission.request.body["HyperParameters"]
    assert json.loads(values["sagemaker_submit_directory"]) == "s3://mine/code.tar.gz"
    assert not submission.uploads


def test_our_runtime_gets_packed_source_of_s3_alone(aws: None) -> None:
    body = _prepare(
        {"entry_point": "train.py", "source_dir": "s3://mine/code.tar.gz", "output_path": "s3://mine/out"}
    ).request.body
    runtime, source = (channel["DataSource"]["S3DataSource"]["S3Uri"] for channel in body["InputDataConfig"])
    assert runtime.startswith("s3://mine/cloudtrain/runtime/")
    assert source == "s3://mine/code.tar.gz"


def test_the_job_goes_to_the_account_of_its_session(aws: None) -> None:
    class Session:
        """The SageMaker SDK's, as far as it is asked."""

        boto_session = boto3.Session(region_name="eu-west-1")
        default_bucket_prefix = "team/x"

    submission = Estimator(**IMAGE, sagemaker_session=Session()).prepare(job_name="job")
    output = submission.request.body["OutputDataConfig"]["S3OutputPath"]
    assert output == "s3://sagemaker-eu-west-1-123456789012/team/x/"
    assert submission.indexed


def test_a_job_without_a_script_is_left_to_its_image(aws: None) -> None:
    body = _prepare({"hyperparameters": {"a": "1.10"}, "container_arguments": ["--x"]}).request.body
    assert body["AlgorithmSpecification"]["ContainerArguments"] == ["--x"]
    assert body["HyperParameters"] == {"a": "1.10"}
    assert "InputDataConfig" not in body


def test_our_runtime_is_the_default_of_a_script(aws: None, script: str) -> None:
    body = _prepare({"entry_point": script}).request.body
    assert [channel["ChannelName"] for channel in body["InputDataConfig"]] == ["cloudtrain", "code"]


def test_the_variable_chooses_the_runtime_before_the_config_file(
    aws: None, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("runtime: cloudtrain\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    monkeypatch.setenv("CLOUDTRAIN_RUNTIME", "toolkit")
    assert "InputDataConfig" not in _prepare({"entry_point": script}).request.body
    assert "InputDataConfig" in _prepare({"entry_point": script, "runtime": "cloudtrain"}).request.body
    monkeypatch.setenv("CLOUDTRAIN_RUNTIME", "tolkit")
    with pytest.raises(InvalidJob, match=r"CLOUDTRAIN_RUNTIME: .*\n  Did you mean 'toolkit'"):
        _prepare({"entry_point": script})


def test_the_profiler_runs_in_a_separate_job(toolkit: None, script: str) -> None:
    config = ProfilerConfig(profile_params=Profiler(cpu_profiling_duration=60))
    body = _prepare(
        {"entry_point": script, "profiler_config": config, "output_path": "s3://mine/out"}
    ).request.body
    assert body["ProfilerConfig"] == {
        "S3OutputPath": "s3://mine/out",
        "DisableProfiler": False,
        "ProfilingParameters": {"CPUProfilingDuration": "60", "SMPFileRotationSecs": "600"},
    }
    (rule,) = body["ProfilerRuleConfigurations"]
    assert rule["RuleConfigurationName"] == "DetailedProfilerProcessingJobConfig-job"
    image = "503895931360.dkr.ecr.us-east-1.amazonaws.com/detailed-profiler-processing:latest"
    assert rule["RuleEvaluatorImage"] == image


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no role": ({"role": None}, r"role: SageMaker needs one"),
    "no instances": ({"instance_type": None, "platform": "sagemaker"}, r"instance_type: SageMaker needs one"),
    "options": ({"platform_options": {"a": 1}}, r"unknown field .platform_options.a"),
    "output": ({"output_path": "file:///tmp"}, r"output_path: SageMaker reads and writes S3"),
    "checkpoints": (
        {"checkpoint_s3_uri": "file:///tmp"},
        r"checkpoint_s3_uri: SageMaker reads and writes S3",
    ),
    "hosts": ({"host_timeout": 5.0}, r"host_timeout: SageMaker's toolkit does not support it"),
    "reaction": ({"on_hang": "stop"}, r"on_hang: SageMaker's toolkit does not support it"),
    "hang": ({"hang_timeout": 5.0}, r"hang_timeout: SageMaker's toolkit does not support it"),
    "processes": ({"distribution": {"processes": {}}}, r"toolkit cannot launch ranks with 'processes'"),
    "horovod": ({"distribution": {"horovod": {}}}, r"toolkit cannot launch ranks with 'horovod'"),
    "restarts": (
        {"instance_type": "ml.g5.xlarge", "distribution": {"torch_distributed": {"max_restarts": 1}}},
        r"torch_distributed: SageMaker's toolkit starts one process per GPU, without restarts",
    ),
    "channel": (
        {"enable_network_isolation": True, "model_uri": "s3://b/m", "model_channel_name": "code"},
        r"inputs.code: with enable_network_isolation",
    ),
    "profiler": (
        {"profiler_config": {"profile_params": {}, "framework_profile_params": {"a": "b"}}},
        r"profiler_config: profile_params cannot be combined with",
    ),
    "packed dependencies": (
        {"source_dir": "s3://b/x.tar.gz", "dependencies": ["lib"]},
        r"dependencies: cannot be added to a source that is packed already",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, toolkit: None, script: str) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        _prepare({"entry_point": script, **arguments})


def test_the_request_of_a_dry_run_is_the_one_that_is_sent(toolkit: None, script: str) -> None:
    boto3.client("s3").create_bucket(Bucket="mine")
    estimator = PyTorch(
        script, "2.5.1", "py311", role=ROLE, instance_type="ml.g5.xlarge", output_path="s3://mine/out"
    )
    request = estimator.prepare(job_name="same").request
    job = estimator.fit(wait=False, job_name="same")
    described = boto3.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    assert described["HyperParameters"] == request.body["HyperParameters"]
    assert described["ResourceConfig"] == request.body["ResourceConfig"]
