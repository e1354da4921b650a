"""How users test their own submission code: with the public FakePlatform."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain import Estimator, FailureClass, FailureReport, JobStatus, TrainingFailed
from cloudtrain.errors import JobExists, JobNotFound
from cloudtrain.index import list_jobs
from cloudtrain.testing import FakePlatform


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("print('x')")
    return str(tmp_path / "train.py")


def test_the_fake_platform_keeps_the_request_and_gives_the_outcome(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = FakePlatform(logs=["[rank 0] loss=1"], model_data="s3://b/m")
    estimator = Estimator(
        script, platform=platform, hyperparameters={"lr": 0.1}, environment={"A_TOKEN": "x"}
    )
    estimator.set_hyperparameters(epochs=2)
    job = estimator.fit({"train": "s3://b/train"}, job_name="mine")
    [request] = platform.requests
    assert request.body["hyperparameters"] == {"lr": 0.1, "epochs": 2}
    assert request.body["environment"] == {"A_TOKEN": "***"}
    assert request.body["source"]["sha256"]
    assert (job.name, job.status, job.logs(), estimator.model_data) == (
        "mine",
        "Completed",
        "[rank 0] loss=1\n",
        "s3://b/m",
    )
    assert capsys.readouterr().out == "[rank 0] loss=1\n"
    assert list_jobs() == []


def test_a_failure(script: str) -> None:
    failure = FailureReport(FailureClass.KILLED, "", rank=1, host="h", signal=9, exit_code=137)
    with pytest.raises(TrainingFailed, match="rank 1 on h was killed by SIGKILL"):
        Estimator(script, platform=FakePlatform(failure=failure)).fit()


def test_fit_has_the_argument_order_of_the_sdk(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = Estimator(script, platform=FakePlatform(logs=["a line"]))
    assert estimator.fit("s3://b/train", False, "All", "first").name == "first"
    estimator.fit(None, True, "None", "second")
    assert capsys.readouterr().out == ""
    estimator.fit(None, True, "All", "third")
    assert capsys.readouterr().out == "a line\n"


def test_a_second_fit_starts_a_job_with_a_new_name(script: str) -> None:
    estimator = Estimator(script, platform=FakePlatform(), job_name="mine")
    names = [estimator.fit(wait=False).name for _ in range(3)]
    assert names[0] == "mine"
    assert all(name.startswith("mine-2") for name in names[1:])
    assert len(set(names)) == 3


def test_a_failure_without_a_reason(script: str) -> None:
    job = Estimator(script, platform=FakePlatform(JobStatus.FAILED)).fit(wait=False)
    assert job.describe().exit_code == 1
    with pytest.raises(TrainingFailed, match="made to fail") as caught:
        job.wait()
    assert caught.value.failure.failure_class == FailureClass.PLATFORM


def test_a_job_that_runs_until_it_is_stopped(script: str) -> None:
    job = Estimator(script, platform=FakePlatform(JobStatus.RUNNING)).fit(wait=False)
    with pytest.raises(TimeoutError, match="still Running"):
        job.wait(timeout=0.1)
    job.stop()
    assert job.wait().status == JobStatus.STOPPED


def test_names(script: str) -> None:
    platform = FakePlatform()
    Estimator(script, platform=platform).fit(job_name="a")
    with pytest.raises(JobExists):
        Estimator(script, platform=platform).fit(job_name="a")
    with pytest.raises(JobNotFound):
        platform.describe("b")
    assert [job.name for job in platform.list()] == ["a"]
