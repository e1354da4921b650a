"""The identity that trackers see: valid for each of them, the same in all attempts, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import Host, JobStatus, Paths
from cloudtrain.contract.environment import script_environment
from cloudtrain.contract.trackers import (
    RUN_ID,
    TRACKER_VARIABLES,
    new_run_id,
    tracker_variables,
    without_empty,
    without_outer_job,
)
from cloudtrain.platforms.supervised import JobFolder, JobRecord

RESERVED = ":;,#?/'"
"""The characters that wandb 0.31 refuses in a run's identity (``Settings.validate_run_id``)."""


def test_all_attempts_have_one_identity() -> None:
    first, second = (tracker_variables("a-job", "a-job-1", "", attempt) for attempt in (0, 1))
    tags = [json.loads(variables.pop("MLFLOW_RUN_CONTEXT")) for variables in (first, second)]
    assert first == second
    assert [one.pop("cloudtrain.attempt") for one in tags] == ["0", "1"]
    assert tags[0] == tags[1]
    assert tags[0] == {
        "mlflow.runName": "a-job",
        "cloudtrain.job": "a-job",
        "cloudtrain.run_id": "a-job-1",
        "cloudtrain.rank": "rank0",
    }


def test_a_rank_continues_its_own_run_of_mlflow() -> None:
    runs = {"rank0": "5f0c1e", "rank1": "9ab2d4"}
    found = [tracker_variables("a-job", "a-job-1", part, 1, runs) for part in ("", "rank1", "rank2")]
    assert [one.get("MLFLOW_RUN_ID") for one in found] == ["5f0c1e", "9ab2d4", None]


def test_each_rank_has_its_own_run_in_one_group() -> None:
    ranks = [tracker_variables("a-job", "a-job-1", part, 0) for part in ("", "rank1", "algo-2")]
    assert [one["WANDB_RUN_ID"] for one in ranks] == ["a-job-1", "a-job-1-rank1", "a-job-1-algo-2"]
    assert [one["WANDB_NAME"] for one in ranks] == ["a-job", "a-job-rank1", "a-job-algo-2"]
    assert {one["WANDB_RUN_GROUP"] for one in ranks} == {"a-job"}
    assert len({one["COMET_EXPERIMENT_KEY"] for one in ranks}) == 3


@pytest.mark.parametrize("name", ["a", "Train-01", "x" * 63, "train-20261121-140209-k3f9"])
@pytest.mark.parametrize("part", ["", "rank1023", "algo-1"])
def test_the_trackers_accept_it(name: str, part: str) -> None:
    runs = {part or "rank0": "5f0c1e"}
    variables = tracker_variables(name, new_run_id(name, 1.8e9), part, 0, runs)
    assert set(variables) == set(TRACKER_VARIABLES)
    run_id, key = variables["WANDB_RUN_ID"], variables["COMET_EXPERIMENT_KEY"]
    assert not set(run_id) & set(RESERVED) and run_id == run_id.strip() and len(run_id) <= 128
    assert variables["WANDB_RESUME"] in ("allow", "must", "never", "auto")
    assert key.isalnum() and 32 <= len(key) <= 50
    tags = json.loads(variables["MLFLOW_RUN_CONTEXT"])
    assert all(isinstance(value, str) and len(tag) <= 250 for tag, value in tags.items())


def test_a_later_job_of_the_same_name_has_another_identity(tmp_path: Path) -> None:
    found = []
    for submitted_at in (1_800_000_000.5, 1_800_000_060.5):
        folder = JobFolder(tmp_path / str(submitted_at) / "first-job")
        folder.path.mkdir(parents=True)
        folder.write_record(JobRecord(JobStatus.PENDING, submitted_at))
        before = folder.run_id
        folder.write_record(JobRecord(JobStatus.RUNNING, submitted_at, attempt=3))
        assert folder.run_id == before
        found.append(before)
    assert found == ["first-job-20270115-080000", "first-job-20270115-080100"]


def test_a_generated_name_is_its_own_identity() -> None:
    assert new_run_id("train-20261121-140209-k3f9", 1.8e9) == "train-20261121-140209-k3f9"


def test_an_empty_variable_switches_a_tracker_off() -> None:
    environ = {"WANDB_RUN_ID": "", "WANDB_NAME": "mine", "OTHER": ""}
    assert without_empty(environ) == {"WANDB_NAME": "mine", "OTHER": ""}


def test_a_job_that_a_rank_starts_is_another_job() -> None:
    own = {"WANDB_RUN_ID": "mine", "WANDB_PROJECT": "p"}
    assert without_outer_job(own) == own
    rank = {RUN_ID: "outer", **tracker_variables("outer", "outer", "", 0), "WANDB_PROJECT": "p"}
    assert without_outer_job(rank) == {"WANDB_PROJECT": "p"}


def training_env(
    hyperparameters: dict[str, Any], arguments: list[str], *hidden: str
) -> tuple[Any, dict[str, str]]:
    environment = script_environment(
        Paths(Path("/opt/ml")),
        Host("algo-1", ("algo-1",)),
        hyperparameters,
        {},
        arguments=arguments,
        job_name="j",
        entry_point="train.py",
        master=("algo-1", 7777),
        hider=ValueHider(hidden),
    )
    return json.loads(environment["SM_TRAINING_ENV"]), environment


GITHUB = "ghp_" + "a1B2" * 9

SECRETS: list[tuple[dict[str, Any], list[str], str]] = [
    ({"wandb_api_key": "0123abcd" * 5}, [], "0123abcd"),
    ({"password": "sunshine"}, [], "sunshine"),
    ({"note": GITHUB}, [], GITHUB),
    ({"nested": {"db": {"password": "sunshine"}}}, [], "sunshine"),
    ({"listed": ["a", GITHUB]}, [], GITHUB),
    ({"url": "postgres://app:pa55w0rd@db/x"}, [], "pa55w0rd"),
    ({}, ["--api-key", "sunshine"], "sunshine"),
    ({}, ["--api-key=sunshine"], "sunshine"),
    ({}, ["fit", GITHUB], GITHUB),
    ({}, ["fit", "+wandb.api_key=sunshine"], "sunshine"),
    ({}, ["--api-key", "c3Vuc2hpbmU="], "c3Vuc2hpbmU"),
    ({"listed": [{"db": [{"password": "sunshine"}]}]}, [], "sunshine"),
    ({}, ["--url", "postgres://app:pa55w0rd@db/x"], "pa55w0rd"),
]


@pytest.mark.parametrize(("hyperparameters", "arguments", "secret"), SECRETS)
def test_no_secret_is_in_the_training_env(
    hyperparameters: dict[str, Any], arguments: list[str], secret: str
) -> None:
    _, environment = training_env(hyperparameters, arguments)
    assert secret not in environment["SM_TRAINING_ENV"]


def test_neither_is_a_value_of_the_secrets_field() -> None:
    found, environment = training_env({"note": "it is t0psecret!"}, ["--x", "t0psecret"], "t0psecret")
    assert "t0psecret" not in environment["SM_TRAINING_ENV"]
    assert found["hyperparameters"]["note"] == "it is ***!"


def test_everything_else_is_as_it_was() -> None:
    hyperparameters = {
        "lr": 0.1,
        "max_token": 512,
        "eos_token": "</s>",
        "tokens": ["a"],
        "flag": True,
        "none": None,
        "api_key": "secret",
    }
    arguments = ["fit", "--eos-token", "</s>", "--lr=0.1", "", "--", "x=y"]
    found, environment = training_env(hyperparameters, arguments)
    assert found["hyperparameters"] == {**hyperparameters, "api_key": "***"}
    assert found["hps"] == found["hyperparameters"]
    assert found["user_args"] == arguments
    assert (found["current_host"], found["is_master"], found["model_dir"]) == (
        "algo-1",
        True,
        "/opt/ml/model",
    )
    assert environment["SM_HP_API_KEY"] == "secret"  # the script itself gets it
    assert json.loads(environment["SM_HPS"]) == hyperparameters
