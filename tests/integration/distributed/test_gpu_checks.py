"""./scripts/gpu_checks runs, and reports what fails. Without a GPU, only its dry run can be tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "gpu_checks"


def gpu_checks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=250)


def test_a_dry_run_of_some_groups() -> None:
    done = gpu_checks("--dry", "--only", "environment,sharing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dry run on CPUs: no GPU, torch 2." in done.stdout
    assert "| sharing | 1 | two ranks on one GPU | ok |" in done.stdout
    assert ", 0 failed." in done.stdout


@pytest.mark.soak
def test_a_group_without_time_is_a_failure() -> None:
    done = gpu_checks("--dry", "--only", "environment", "--seconds", "1")
    assert done.returncode == 1
    assert "| environment | 0 | not run | no time left |" in done.stdout


@pytest.mark.soak
def test_an_unknown_group() -> None:
    done = gpu_checks("--only", "deaht")
    assert (done.returncode, "unknown groups: deaht" in done.stderr) == (2, True)


@pytest.mark.soak
def test_a_dry_run_of_all_groups() -> None:
    done = gpu_checks("--dry")
    assert done.returncode == 0, done.stdout
    assert "| death | 0 | a dead rank is named at the next step | ok |" in done.stdout
    assert ", 0 failed." in done.stdout


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_all_groups_on_a_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
