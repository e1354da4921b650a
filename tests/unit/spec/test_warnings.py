"""Warnings about hyperparameters, arguments and tags that look like secrets, or that cloudtrain replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain import Estimator
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.warnings import job_warnings
from cloudtrain.testing import FakePlatform

PASSWORD = "kT9v" + "2mQx7Lp"
TOKEN = "hf" + "_" + "aB1" * 11 + "z"


def warned(**fields: object) -> list[str]:
    job = TrainingJob.from_dict({"entry_point": "train.py", **fields})
    found = job_warnings(job)
    assert not any(secret in text for text in found for secret in (PASSWORD, TOKEN, "pw@"))
    return [text.partition(" looks like")[0] for text in found]


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({"hyperparameters": {"api_key": PASSWORD}}, ["hyperparameters.api_key"]),
        ({"hyperparameters": {"api_key": "correcthorsebattery"}}, ["hyperparameters.api_key"]),
        ({"hyperparameters": {"openaiApiKey": "hunter-two"}}, ["hyperparameters.openaiApiKey"]),
        ({"arguments": ["--apikey=correcthorse"]}, ["arguments[0] (--apikey)"]),
        ({"environment": {"SOLVER_LICENSE": PASSWORD}}, ["environment.SOLVER_LICENSE"]),
        ({"environment": {"licence": PASSWORD}}, ["environment.licence"]),
        ({"hyperparameters": {"dbPassword": "sunshine"}}, ["hyperparameters.dbPassword"]),
        ({"hyperparameters": {"model": TOKEN}}, ["hyperparameters.model"]),
        ({"hyperparameters": {"index": "https://ann:" + "pw@pypi.net/simple"}}, ["hyperparameters.index"]),
        ({"arguments": ["--api-key", PASSWORD]}, ["arguments[1] (--api-key)"]),
        ({"arguments": [f"--token={PASSWORD}", "-v"]}, ["arguments[0] (--token)"]),
        ({"arguments": ["fit", TOKEN]}, ["arguments[1]"]),
        ({"tags": {"password": PASSWORD}}, ["the tag password"]),
    ],
)
def test_likely_secrets_are_named(fields: dict[str, object], places: list[str]) -> None:
    assert warned(**fields) == places


def test_a_checkpoint_path_that_nothing_is_synced_with() -> None:
    path = {"checkpoint_local_path": "/fsx/checkpoints"}
    assert warned(**path) == [
        "nothing is synced with checkpoint_local_path (/fsx/checkpoints), because checkpoint_s3_uri is not set"
    ]
    assert not warned(**path, checkpoint_s3_uri="s3://mine/checkpoints")


def test_false_friends_are_not_named() -> None:
    hyperparameters = {
        "tokenizer": "bert-base-uncased-v2",
        "num_tokens": 50257,
        "eos_token": "</s>12345678",
        "pad_token_id": "50256",
        "keyboard": PASSWORD,
        "monkey": PASSWORD,
        "author": "ann4you7x9",
        "sort_key": "column_12",
        "token": 5,
        "data": "s3://bucket/key?versionId=12",
        "api_key": "$API_KEY",
        "password": "/run/secrets/password",
    }
    environment = {
        "MLM_LICENSE_FILE": "27000@licenses7.corp.example.net",
        "GRB_LICENSE_FILE": "/opt/gurobi11/gurobi.lic",
        "LICENSE": "Apache-2.0",
        "ACCEPT_LICENSE": "yes",
        "LICENSE_SERVER": "https://user7.licenses.corp/q8x",
        "GRB_LICENSEID": "2451337",
        "LICENSE_KEY": PASSWORD,  # a secret by its name: no request shows it
    }
    arguments = [
        "--tokenizer",
        "gpt2",
        "--no-auth",
        "--key",
        "name",
        "--lr=0.1",
        "--max-new-tokens",
        "12345678",
    ]
    tags = {"team": "a1b2c3d4e5"}
    fields = {"hyperparameters": hyperparameters, "environment": environment, "arguments": arguments}
    assert warned(**fields, tags=tags) == []


def test_hyperparameters_of_the_platform() -> None:
    [warning] = warned(hyperparameters={"sagemaker_program": "other.py", "sagemaker_x": 1, "lr": 1})
    assert "cloudtrain sets its own" in warning and "sagemaker_program, sagemaker_x" in warning


def test_an_estimator_warns(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    estimator = Estimator(
        str(tmp_path / "train.py"), hyperparameters={"api_key": PASSWORD}, platform=FakePlatform()
    )
    with pytest.warns(UserWarning, match=r"hyperparameters\.api_key looks like a secret"):
        estimator.fit()


def test_a_metric_without_a_group_is_warned_of() -> None:
    """The SageMaker SDK accepts it: the metric has no values."""
    found = warned(
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}, {"Name": "a", "Regex": "a=.*"}]
    )
    assert [text.partition(":")[0] for text in found] == [
        "metric_definitions[1].Regex has no group, and finds no value"
    ]
