"""Jobs on the simulated SageMaker, from `fit` to their outcome."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from simulated import SimulatedSageMaker, wait_until

from cloudtrain import FailureClass, JobStatus, TrainingFailed
from cloudtrain.storage import open_store

GREETING = """
import os
import cloudtrain
from cloudtrain import environment

assert cloudtrain.__file__.startswith("/var/tmp/cloudtrain-"), cloudtrain.__file__
print("channels", os.environ["SM_CHANNELS"], sorted(os.listdir(environment.channel("train"))), flush=True)
print("token", os.environ["MY_TOKEN"], flush=True)
(environment.model_dir() / f"model-{environment.rank()}").write_text("weights")
(environment.model_dir() / "config").write_text(str(environment.rank()))
"""

RAISES = """
import os, time

if os.environ["RANK"] == "3":
    raise ValueError("a bad batch")
time.sleep(600)
"""

SAVES_ON_SIGTERM = """
import signal, sys, time
from cloudtrain import environment

def save(number, frame):
    (environment.model_dir() / "weights").write_text("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(600)
"""


def test_a_job_completes(sagemaker: SimulatedSageMaker) -> None:
    for name in ("a.txt", "b.txt"):
        open_store(f"s3://{sagemaker.bucket}/data").write(name, b"")
    estimator = sagemaker.estimator(GREETING, instance_count=2, environment={"MY_TOKEN": "a secret"})
    job = estimator.fit({"train": f"s3://{sagemaker.bucket}/data"}, job_name="completes", logs=False)
    assert job.status == JobStatus.COMPLETED
    assert sagemaker.states("completes") == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    lines = job.logs().splitlines()
    assert sum("""channels ["train"] ['a.txt', 'b.txt']""" in line for line in lines) == 2
    assert sum("token a secret" in line for line in lines) == 2
    secret = open_store(f"s3://{sagemaker.bucket}/code/secrets/completes").read("secret").decode()
    assert len(secret) == 64
    assert secret not in json.dumps(sagemaker.service.jobs["completes"].request) + job.logs()
    archive = open_store(f"s3://{sagemaker.bucket}/out/completes/output").read("model.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive)) as model:
        assert sorted(model.getnames()) == ["config", "model-0", "model-1"]
        config = model.extractfile("config")
        assert config
        assert config.read() == b"0"  # the leader's; SageMaker does not say whose file wins
    assert sum("model/config differs between hosts" in line for line in lines) == 1


def test_a_submit_makes_few_requests(sagemaker: SimulatedSageMaker) -> None:
    estimator = sagemaker.estimator(GREETING)
    requests = [
        sagemaker.requests_of(lambda name=name: estimator.fit(job_name=name, wait=False))
        for name in ("first", "second")
    ]
    assert requests == [
        ["PutObject", "PutObject", "CreateTrainingJob"],
        ["PutObject", "CreateTrainingJob"],
    ]


def test_a_runtime_that_was_removed_is_uploaded_again(sagemaker: SimulatedSageMaker) -> None:
    estimator = sagemaker.estimator("print('done')")
    estimator.fit(job_name="first", logs=False)
    store = open_store(f"s3://{sagemaker.bucket}/code/runtime")
    store.delete([entry.key for entry in store.list()])
    with pytest.raises(TrainingFailed, match="runtime was deleted from the bucket"):
        estimator.fit(job_name="second", logs=False)
    assert estimator.fit(job_name="third", logs=False).status == JobStatus.COMPLETED


def test_the_rank_that_fails_is_named(sagemaker: SimulatedSageMaker) -> None:
    estimator = sagemaker.estimator(
        RAISES, instance_count=2, distribution={"processes": {"processes_per_host": 2}}
    )
    with pytest.raises(TrainingFailed) as raised:
        estimator.fit(job_name="fails", logs=False)
    failure = raised.value.failure
    assert (failure.rank, failure.host, failure.exception_type) == (3, "algo-2", "ValueError")
    assert failure.failure_class == FailureClass.USER_ERROR
    assert "a bad batch" in failure.message
    assert "train.py" in failure.traceback
    assert sagemaker.states("fails")[-1] == "Failed"


def test_a_stop_lets_the_script_save(sagemaker: SimulatedSageMaker) -> None:
    job = sagemaker.estimator(SAVES_ON_SIGTERM).fit(job_name="stops", wait=False)
    sagemaker.wait_for_line(job, "training")
    job.stop()
    wait_until(lambda: job.status.is_final)
    assert job.status == JobStatus.STOPPED
    archive = open_store(f"s3://{sagemaker.bucket}/out/stops/output").read("model.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive)) as model:
        assert model.getnames() == ["weights"]
