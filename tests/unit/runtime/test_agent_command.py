"""The command line of the agent on a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.contract.agent import preset_command
from cloudtrain.contract.frameworks import WorldPorts
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.runtime.launchers.agent import agent_command


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with console scripts, a program, and a Ray without ``symmetric-run``."""
    for name, start in (
        ("accelerate", "#!/usr/bin/python3\n"),
        ("ray", "#!/bin/sh\n'''exec' /p/python"),
        ("own", ""),
    ):
        (tmp_path / name).write_text(start)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "packages" / "ray").mkdir(parents=True)
    (tmp_path / "packages" / "ray" / "__init__.py").touch()
    return tmp_path


def command(
    folder: Path, text: str, preset: str = "", hosts: int = 2, ranks: int = 2, **options: Any
) -> list[str]:
    line = agent_command(
        text,
        preset,
        RankSlot.on_host(hosts - 1, hosts, ranks)[0],
        [f"algo-{number + 1}" for number in range(hosts)],
        ("algo-1", 1234),
        WorldPorts(agent=5678),
        **{
            "run": "/run",
            "python": sys.executable,
            "program_folders": [str(folder)],
            "rank_program": "rank.py",
            "environment": {"PATH": str(folder), "PYTHONPATH": str(folder / "packages")},
            "one_machine": False,
            **options,
        },
    )
    return list(line)


@pytest.mark.parametrize(
    ("hosts", "ranks", "mode"), [(2, 2, ["--multi_gpu"]), (2, 1, ["--multi_gpu"]), (1, 1, [])]
)
def test_accelerate(programs: Path, hosts: int, ranks: int, mode: list[str]) -> None:
    """With the job's Python. Accelerate refuses ``--multi_gpu`` for one process."""
    found = command(programs, preset_command("accelerate", ""), "accelerate", hosts, ranks)
    assert found == [
        *(sys.executable, str(programs / "accelerate"), "launch", "--num_machines", str(hosts)),
        *("--machine_rank", str(hosts - 1), "--main_process_ip", "algo-1", "--main_process_port", "1234"),
        *("--num_processes", str(hosts * ranks), *mode, "rank.py", "@agent"),
    ]


def test_other_programs_run_as_they_are(programs: Path) -> None:
    text = "own {host} {host_names} {agent_port} {hostfile}"
    shown = [str(programs / "own"), "algo-2", "algo-1,algo-2", "5678", "/run/hostfile", "rank.py", "@agent"]
    assert command(programs, text) == shown
    elsewhere = command(programs, "accelerate", program_folders=["/elsewhere"])
    assert elsewhere == [str(programs / "accelerate"), "rank.py", "@agent"]


def test_a_program_that_is_not_there(programs: Path) -> None:
    with pytest.raises(PlatformError, match="no program 'deepspeed' on the host algo-2") as caught:
        command(programs, preset_command("deepspeed", ""), "deepspeed")
    assert caught.value.hint == "Add deepspeed to requirements.txt, or use an image that has it."


def test_ray_needs_its_command_and_its_own_machine(programs: Path) -> None:
    text = preset_command("ray", "")
    with pytest.raises(InvalidJob, match="the installed Ray has no command symmetric-run"):
        command(programs, text, "ray", ranks=1)
    with pytest.raises(InvalidJob, match="Ray runs once on a machine"):
        command(programs, text, "ray", ranks=1, one_machine=True)
    (programs / "packages" / "ray" / "scripts").mkdir()
    (programs / "packages" / "ray" / "scripts" / "symmetric_run.py").touch()
    found = command(programs, text, "ray", ranks=1)
    assert found[:5] == [sys.executable, str(programs / "ray"), "symmetric-run", "--address", "algo-1:5678"]
    assert found[5:] == ["--min-nodes", "2", "--", sys.executable, "rank.py", "@agent"]
