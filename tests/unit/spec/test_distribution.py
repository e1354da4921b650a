"""Distributions: from the user's options to the keys of the contract, which the launcher reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain.cli.submit import command

CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "none": ([], {}),
    "processes": (
        ["--processes-per-host", "2"],
        {"sagemaker_processes_enabled": True, "sagemaker_processes_per_host": 2},
    ),
    "torchrun": (["--torchrun"], {"sagemaker_torch_distributed_enabled": True}),
    "mpirun": (
        ["--mpirun", "--processes-per-host", "2", "--set", "distribution.mpi.custom_mpi_options=-x 'A=b c'"],
        {
            "sagemaker_mpi_enabled": True,
            "sagemaker_mpi_num_of_processes_per_host": 2,
            "sagemaker_mpi_custom_mpi_options": "-x 'A=b c'",
        },
    ),
    "agent": (
        ["--set", "distribution.agent={command: 'launch --n {hosts}', processes_per_host: 2}"],
        {
            "sagemaker_agent_enabled": True,
            "sagemaker_agent_command": "launch --n {hosts}",
            "sagemaker_processes_per_host": 2,
        },
    ),
    "preset": (
        ["--set", "distribution.agent={preset: deepspeed, options: --enable_each_rank_log logs}"],
        {
            "sagemaker_agent_enabled": True,
            "sagemaker_agent_preset": "deepspeed",
            "sagemaker_agent_command": "deepspeed --hostfile {hostfile} --no_ssh --node_rank {host_rank}"
            " --master_addr {master_addr} --master_port {master_port} --enable_each_rank_log logs",
        },
    ),
    "horovod": (
        ["--horovod"],
        {"sagemaker_horovod_enabled": True, "sagemaker_horovod_implementation": "auto"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_options_of_submit_become_the_contracts_keys(case: str, tmp_path: Path) -> None:
    options, expected = CASES[case]
    script = tmp_path / "train.py"
    script.write_text("")
    result = CliRunner().invoke(command, [str(script), "--dry-run", *options])
    assert result.exit_code == 0, result.output
    passed = json.loads(result.output)["hyperparameters"]
    launcher = {
        key: json.loads(value)
        for key, value in passed.items()
        if key.startswith("sagemaker_")
        and ("enabled" in key or "process" in key or "mpi" in key or "horovod" in key or "agent" in key)
    }
    assert launcher == expected
