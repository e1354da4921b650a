"""The arguments of an estimator that is attached to a job: from the request that its platform remembers."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain._sdk.attach import attached_arguments
from cloudtrain.job import Job
from cloudtrain.platforms import Request
from cloudtrain.testing import FakePlatform


class Remembering(FakePlatform):
    """A platform that remembers this request."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body = body

    def request(self, job_name: str) -> Request:
        return Request(self.name, job_name, self.body)


def arguments(body: dict[str, Any], name: str = "mnist-20261122-203000-k3f9") -> dict[str, Any]:
    return attached_arguments(Job(name, Remembering(body)), "model")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("mnist-20261122-203000-k3f9", "mnist"),
        ("pytorch-training-2026-11-22-20-30-00-123", "pytorch-training"),
        ("mine", "mine"),
    ],
)
def test_the_base_name_has_no_time(name: str, base: str) -> None:
    assert arguments({}, name)["base_job_name"] == base


def test_secrets_and_own_variables_are_left_out() -> None:
    environment = {"A": "b", "TOKEN": "***", "CLOUDTRAIN_JOB_NAME": "x"}
    assert arguments({"Environment": environment})["environment"] == {"A": "b"}


def test_the_script_and_its_archive() -> None:
    values = {
        "lr": "0.1",
        "name": '"1.10"',
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://mine/sourcedir.tar.gz"',
    }
    found = arguments({"HyperParameters": values})
    assert found["hyperparameters"] == {"lr": 0.1, "name": "1.10"}
    assert (found["entry_point"], found["source_dir"]) == ("train.py", "s3://mine/sourcedir.tar.gz")


def test_hosts() -> None:
    group = {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 2}
    assert arguments({"ResourceConfig": {"InstanceGroups": [group]}})["instance_groups"] == [
        {"instance_group_name": "a", "instance_type": "ml.m5.large", "instance_count": 2}
    ]
    assert arguments({"host_count": 3})["instance_count"] == 3


def test_a_model_channel() -> None:
    assert arguments({"InputDataConfig": [{"ChannelName": "model"}]})["model_channel_name"] == "model"
    assert "model_channel_name" not in arguments({"InputDataConfig": [{"ChannelName": "train"}]})
