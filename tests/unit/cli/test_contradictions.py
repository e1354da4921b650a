"""Options of ``cloudtrain submit`` that contradict one another are refused, never silently dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain.cli._submit_fields import job_fields
from cloudtrain.cli.submit import command
from cloudtrain.errors import InvalidJob

CONTRADICTIONS = {
    "launchers": (["--mpirun", "--horovod"], ["--mpirun and --horovod cannot be combined"]),
    "all-launchers": (["--horovod", "--torchrun", "--mpirun"], ["--torchrun, --mpirun and --horovod"]),
    "dry-run-check": (["--dry-run", "--check"], ["--dry-run and --check cannot be combined"]),
    "check-diff": (["--check", "--diff", "a"], ["--check and --diff cannot be combined"]),
    "wait": (["--wait", "--no-wait"], ["--wait and --no-wait cannot be combined"]),
    "launcher-set": (
        ["--mpirun", "--set", "distribution.horovod.processes_per_host=2"],
        ["--mpirun and --set distribution.horovod.processes_per_host both choose", "distribution.mpi.OPTION"],
    ),
    "launcher-set-all": (
        ["--torchrun", "--set", "distribution={processes: {}}"],
        ["--torchrun and --set distribution both"],
    ),
    "processes-set": (
        ["--processes-per-host", "2", "--set", "distribution.torch_distributed.enabled=true"],
        ["--processes-per-host and --set distribution.torch_distributed.enabled both choose"],
    ),
    "processes-twice": (
        ["--mpirun", "--processes-per-host", "2", "--set", "distribution.mpi.processes_per_host=4"],
        ["--processes-per-host and --set distribution.mpi.processes_per_host both set"],
    ),
    "field": (
        ["--instance-count", "2", "--set", "instance_count=3"],
        ["--instance-count and --set instance_count both set instance_count"],
    ),
    "name": (["--name", "a", "--set", "job_name=b"], ["--name and --set job_name both set job_name"]),
    "input": (
        ["--input", "train=s3://b/x", "--set", "inputs.train=s3://b/y"],
        ["--input train and --set inputs.train both set inputs.train"],
    ),
    "inputs": (
        ["--input", "train=s3://b/x", "--set", "inputs={}"],
        ["--input train and --set inputs both set inputs.train"],
    ),
    "input-uri": (
        ["--input", "train=s3://b/x", "--set", "inputs.train.s3_data=s3://b/y"],
        ["--input train and --set inputs.train.s3_data both set inputs.train.s3_data"],
    ),
    "input-twice": (
        ["--input", "a=s3://b/x", "--input", "a=s3://b/y"],
        ["--input a is given more than once"],
    ),
    "set-twice": (["--set", "max_run=1", "--set", "max_run=2"], ["--set max_run is given more than once"]),
    "set-replaced": (
        ["--set", "hyperparameters.lr=1", "--set", "hyperparameters={}"],
        ["--set hyperparameters replaces --set hyperparameters.lr"],
    ),
    "mount-source": (
        ["--mount-source", "--set", "platform_options={}"],
        ["--mount-source and --set platform_options both set platform_options.mount_source"],
    ),
    "image": (
        ["--image", "a:1", "--set", "image_uri=b:1"],
        ["--image and --set image_uri both set image_uri"],
    ),
    "gpus": (
        ["--gpus", "2", "--set", "platform_options.gpus=4"],
        ["--gpus and --set platform_options.gpus both set platform_options.gpus"],
    ),
    "env": (
        ["--env", "A=1", "--set", "environment.A=2"],
        ["--env A and --set environment.A both set environment.A"],
    ),
    "env-twice": (["--env", "A=1", "--env", "A=2"], ["--env A is given more than once"]),
    "gpus-of-local": (
        ["--gpus", "2", "--platform", "local"],
        [
            "platform_options.gpus: needs the platform container or slurm",
            "but the job runs on local",
            "see all GPUs",
        ],
    ),
    "script": (["--set", "entry_point=other.py"], ["FILE and --set entry_point both set entry_point"]),
    "script-argument": (
        ["--set", "hyperparameters.lr=1", "--", "--lr", "2"],
        ["--set hyperparameters.lr and the arguments after -- both pass --lr to the script"],
    ),
    "script-argument-with-value": (
        ["--set", "hyperparameters={e: 1}", "--", "-e=2"],
        ["--set hyperparameters.e and the arguments after -- both pass -e to the script"],
    ),
    "script-arguments": (
        ["--set", "arguments=[fit]", "--", "--lr", "2"],
        ["--set arguments and the arguments after -- both set arguments"],
    ),
}


def test_options_for_one_field_set_it(script: str) -> None:
    options = ["--image", "python:3", "--gpus", "2", "--env", "A=1=2", "--env", "B="]
    parsed = dict(command.make_context("submit", [script, *options, "--mount-source"]).params)
    fields = job_fields(parsed.pop("file"), parsed.pop("script_args"), parsed)
    assert (fields["image_uri"], fields["environment"]) == ("python:3", {"A": "1=2", "B": ""})
    assert fields["platform_options"] == {"mount_source": str(Path(script).parent), "gpus": 2}


@pytest.mark.parametrize("value", ["HF_TOKEN", "=1"])
def test_a_variable_needs_a_name_and_a_value(value: str, script: str) -> None:
    result = CliRunner().invoke(command, [script, "--env", value])
    assert (result.exit_code, "does not have the form NAME=VALUE" in result.stderr) == (2, True)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("")
    return str(path)


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(case: str, script: str) -> None:
    options, phrases = CONTRADICTIONS[case]
    result = CliRunner().invoke(command, [script, *options])
    assert isinstance(result.exception, InvalidJob)
    assert result.exception.hint
    for phrase in phrases:
        assert phrase in str(result.exception)


@pytest.mark.parametrize(
    "options",
    [
        ["--no-wait"],
        ["--json"],
        ["--mpirun", "--processes-per-host", "2", "--set", "distribution.mpi.custom_mpi_options=-v"],
        ["--processes-per-host", "2", "--set", "distribution.processes.enabled=true"],
        ["--set", "hyperparameters={lr: 1}", "--set", "hyperparameters.epochs=2", "--", "--batch", "4"],
        ["--instance-count", "2", "--set", "max_run=60"],
    ],
)
def test_options_that_agree_are_accepted(options: list[str], script: str) -> None:
    result = CliRunner().invoke(command, [script, "--dry-run", *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["job_name"]


def test_a_job_file_may_be_overridden(tmp_path: Path, script: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"entry_point: {script}\nhyperparameters: {{lr: 1}}\ndistribution: {{mpi: {{}}}}\n")
    result = CliRunner().invoke(
        command, [str(job), "--dry-run", "--mpirun", "--set", f"entry_point={script}", "--", "--lr", "2"]
    )
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert (body["hyperparameters"]["lr"], body["arguments"]) == ("1", ["--lr", "2"])


def test_an_input_may_be_refined(tmp_path: Path, script: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"entry_point: {script}\ninputs: {{valid: s3://b/v}}\n")
    options = ["--input", "train=s3://b/x", "--set", "inputs.train.content_type=text/csv"]
    context = command.make_context(
        "submit", [str(job), *options, "--set", "inputs.valid.content_type=text/plain"]
    )
    parameters = dict(context.params)
    assert job_fields(parameters.pop("file"), parameters.pop("script_args"), parameters)["inputs"] == {
        "train": {"s3_data": "s3://b/x", "content_type": "text/csv"},
        "valid": {"s3_data": "s3://b/v", "content_type": "text/plain"},
    }
