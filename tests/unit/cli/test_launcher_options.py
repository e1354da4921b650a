"""The launcher options refine the job file's distribution. They never drop a part of it silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudtrain.cli.submit import command
from cloudtrain.errors import InvalidJob

TORCH = {"torch_distributed": {"processes_per_host": 2, "max_restarts": 3}}
MPI = {"mpi": {"enabled": True, "custom_mpi_options": "-v"}, "instance_groups": ["a"]}
HOROVOD = {"horovod": {"implementation": "cloudtrain"}}


def fields_for(tmp_path: Path, fields: dict[str, Any], *arguments: str) -> dict[str, Any]:
    from cloudtrain.cli._submit_fields import job_fields

    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"entry_point": "train.py", **fields}))
    options = dict(command.make_context("submit", [str(job), *arguments]).params)
    file, script_arguments = options.pop("file"), options.pop("script_args")
    return job_fields(file, script_arguments, options)


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        (TORCH, ["--torchrun"], TORCH),
        (
            TORCH,
            ["--processes-per-host", "4"],
            {"torch_distributed": {"processes_per_host": 4, "max_restarts": 3}},
        ),
        (
            MPI,
            ["--processes-per-host", "4"],
            {"mpi": {"custom_mpi_options": "-v", "processes_per_host": 4}, "instance_groups": ["a"]},
        ),
        (
            HOROVOD,
            ["--horovod", "--processes-per-host", "4"],
            {"horovod": {"implementation": "cloudtrain", "processes_per_host": 4}},
        ),
        (
            TORCH,
            ["--processes-per-host", "4", "--set", "distribution.torch_distributed.max_restarts=1"],
            {"torch_distributed": {"processes_per_host": 4, "max_restarts": 1}},
        ),
        ({}, ["--processes-per-host", "4"], {"processes": {"processes_per_host": 4}}),
        ({}, ["--mpirun"], {"mpi": {}}),
        ({"mpi": {"enabled": False}}, ["--torchrun"], {"mpi": {"enabled": False}, "torch_distributed": {}}),
    ],
)
def test_the_distribution_of_the_job_file_is_refined(
    tmp_path: Path, given: dict[str, Any], options: list[str], expected: dict[str, Any]
) -> None:
    assert fields_for(tmp_path, {"distribution": given}, *options)["distribution"] == expected


def test_another_launcher_than_that_of_the_job_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"job\.yaml chooses the distribution mpi, but --torchrun") as caught:
        fields_for(tmp_path, {"distribution": MPI}, "--torchrun")
    assert caught.value.hint == "Remove it in job.yaml, or drop --torchrun."


def test_ranks_that_cannot_be_counted_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="parameter_server sets the number of ranks itself"):
        fields_for(tmp_path, {"distribution": {"parameter_server": {}}}, "--processes-per-host", "4")


def test_defaults_of_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"distribution": TORCH, "hyperparameters": {"lr": 1, "epochs": 1}}))
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    fields = fields_for(tmp_path, {}, "--processes-per-host", "4", "--", "--epochs", "2")
    assert fields["distribution"] == {"torch_distributed": {"processes_per_host": 4, "max_restarts": 3}}
    assert (fields["hyperparameters"], fields["arguments"]) == ({"lr": 1, "epochs": 1}, ["--epochs", "2"])
    assert fields_for(tmp_path, {}, "--mpirun")["distribution"] == {"mpi": {}}
