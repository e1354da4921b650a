"""An estimator's latest job, and `attach`, as notebooks for the SageMaker SDK use them: on moto and on this machine."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloudtrain import Estimator, PyTorch, Session, TrainingJobAnalytics
from cloudtrain.errors import CloudtrainError, JobNotFound, PlatformError, TrainingFailed

ROLE = "arn:aws:iam::123456789012:role/Train"
LOSS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('loss=0.5')\nprint('loss=0.25')\n")
    yield


def on_sagemaker(**arguments: Any) -> PyTorch:
    session = Session(default_bucket="mine")
    session.default_bucket()
    return PyTorch(
        "train.py",
        role=ROLE,
        framework_version="2.5.1",
        py_version="py311",
        instance_count=2,
        instance_type="ml.m5.xlarge",
        hyperparameters={"epochs": 3},
        metric_definitions=LOSS,
        tags=[{"Key": "team", "Value": "a"}],
        environment={"A": "b", "API_TOKEN": "secret-value"},
        subnets=["subnet-1"],
        security_group_ids=["sg-1"],
        sagemaker_session=session,
        **arguments,
    )


def test_the_latest_job(moto: str) -> None:
    one = on_sagemaker(base_job_name="mnist")
    assert one.output_path is None
    one.fit({"train": "s3://mine/train"}, wait=False)
    assert one.output_path == "s3://mine/"
    job = one.latest_training_job
    assert job and one.jobs == [job]
    assert job.job_name == job.name == one._current_job_name
    assert job.rule_job_summary() == []
    answer = job.describe()
    assert (
        answer["TrainingJobName"] == one.sagemaker_session.describe_training_job(job.name)["TrainingJobName"]
    )
    assert answer["ModelArtifacts"]["S3ModelArtifacts"] == one.model_data
    assert (answer.get("ResourceConfig")["InstanceCount"], "RoleArn" in answer) == (2, True)
    assert "answer" not in answer.to_dict()
    assert one.uploaded_code and one.uploaded_code.s3_prefix.startswith("s3://mine/cloudtrain/source/")
    assert one.latest_job_tensorboard_artifacts_path() is None
    job.wait(False)
    one.fit(wait=False)
    assert [found.name for found in one.jobs] == [job.name, one._current_job_name]


def test_an_attached_estimator_has_the_attributes_of_the_job(moto: str) -> None:
    one = on_sagemaker(base_job_name="mnist", output_path="s3://mine/out")
    name = one.fit({"train": "s3://mine/train"}, wait=False).name
    again = PyTorch.attach(name, Session())
    assert isinstance(again, PyTorch)
    for attribute in (
        "role",
        "instance_count",
        "instance_type",
        "output_path",
        "hyperparameters",
        "tags",
        "subnets",
        "base_job_name",
        "max_run",
        "volume_size",
        "security_group_ids",
        "entry_point",
    ):
        assert getattr(again, attribute) == getattr(one, attribute), attribute
    assert again.image_uri == one.training_image_uri()
    assert (again.framework_version, again.py_version) == ("2.5.1", "py311")
    assert (again.model_data, again.latest_training_job and again.latest_training_job.name) == (
        one.model_data,
        name,
    )
    assert again.fit(wait=False).describe()["HyperParameters"]["epochs"] == "3"
    with pytest.raises(JobNotFound):
        Estimator.attach("no-job")


def test_metrics_are_a_table(moto: str, tmp_path: Path) -> None:
    one = on_sagemaker()
    name = one.fit(wait=False).name
    start = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    boto3.client("cloudwatch").put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricData=[
            {
                "MetricName": "loss",
                "Dimensions": [{"Name": "TrainingJobName", "Value": name}],
                "Timestamp": start + timedelta(minutes=minute),
                "Value": value,
            }
            for minute, value in ((0, 0.5), (1, 0.25))
        ],
    )
    rows = [
        {"timestamp": 0.0, "metric_name": "loss", "value": 0.5},
        {"timestamp": 60.0, "metric_name": "loss", "value": 0.25},
    ]
    analytics = TrainingJobAnalytics(name, metric_names=["loss"], sagemaker_session=Session(), period=60)
    assert analytics.rows() == rows
    analytics.export_csv(tmp_path / "metrics.csv")
    assert list(csv.DictReader((tmp_path / "metrics.csv").open())) == [
        {key: str(value) for key, value in row.items()} for row in rows
    ]
    with pytest.warns(UserWarning, match="no values of the metric other"):
        assert TrainingJobAnalytics(name, ["other"]).rows() == []
    later = TrainingJobAnalytics(name, ["loss"], start_time=start + timedelta(seconds=30))
    assert [row["value"] for row in later.rows()] == [0.25]


def test_a_job_of_this_machine_looks_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    one = Estimator("train.py", platform="local", metric_definitions=LOSS, hyperparameters={"a": 1})
    one.fit(logs=False)
    job = one.latest_training_job
    assert job
    answer = job.describe()
    assert (answer["TrainingJobStatus"], answer["SecondaryStatus"]) == ("Completed", "Completed")
    assert answer["FinalMetricDataList"][0]["MetricName"] == "loss"
    assert answer.get("FailureReason") is None and "TrainingEndTime" in list(answer)
    assert {row["metric_name"] for row in one.training_job_analytics.rows()} == {"loss"}
    assert one.training_job_analytics.rows()[0]["timestamp"] == 0
    check_dataframe(one.training_job_analytics)
    with pytest.raises(PlatformError, match="Leave period out"):
        TrainingJobAnalytics(job.name, period=60).rows()
    capsys.readouterr()
    one.logs()
    job.wait(logs=True)
    job.wait("None")
    assert capsys.readouterr().out.count("loss=0.25") == 2
    again = Estimator.attach(job.name)
    assert (again.platform, again.hyperparameters, again.model_data) == ("local", {"a": 1}, one.model_data)


def test_a_job_that_failed_can_be_attached(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("raise ValueError('no data')")
    one = Estimator("train.py", platform="local")
    with pytest.raises(TrainingFailed):
        one.fit(logs=False)
    assert one.latest_training_job
    again = Estimator.attach(one.latest_training_job.name)
    assert again.latest_training_job
    assert "ValueError: no data" in again.latest_training_job.describe()["FailureReason"]
    with pytest.raises(TrainingFailed):
        again.logs()


def check_dataframe(analytics: TrainingJobAnalytics) -> None:
    """With pandas, a DataFrame; without it, an error that names what needs none."""
    try:
        import pandas
    except ImportError:
        with pytest.raises(CloudtrainError, match=r"(?s)needs pandas.*rows\(\)"):
            analytics.dataframe()
        return
    frame = analytics.dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["timestamp", "metric_name", "value"]
