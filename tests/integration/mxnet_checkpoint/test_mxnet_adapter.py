"""A training of real MXNet through a real checkpoint, and back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import cloudtrain

PROGRAM = Path(__file__).parent / "programs" / "resume.py"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "nag"])
def test_a_restored_training_goes_on_bit_for_bit(mxnet_python: str, tmp_path: Path, optimizer: str) -> None:
    done = subprocess.run(
        [mxnet_python, str(PROGRAM), str(tmp_path), optimizer],
        env={**os.environ, "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    fits_not = "0.weight is float32 [4, 3] in the checkpoint and float32 [5, 3] in the model"
    assert fits_not in done.stdout
