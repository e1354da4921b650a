"""Saves a real MXNet training to a real checkpoint, and restores it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import cloudtrain

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "nag"])
def test_a_restored_training_continues_bit_for_bit(mxnet_python: str, tmp_path: Path, optimizer: str) -> None:
    done = run(mxnet_python, "resume.py", str(tmp_path), optimizer)
    assert done.returncode == 0, done.stderr
    fits_not = "0.weight is float32 [4, 3] in the checkpoint and float32 [5, 3] in the model"
    assert fits_not in done.stdout


def test_arrays_in_a_state(mxnet_python: str, tmp_path: Path) -> None:
    done = run(mxnet_python, "arrays.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    version = done.stdout.split()[1]
    assert f'"mxnet": "{version}"' in next(tmp_path.rglob("manifest.json")).read_text()


def run(python: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(PROGRAMS / program), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
