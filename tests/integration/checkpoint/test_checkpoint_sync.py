"""Copying the folder file by file, in any order and at any time, never makes a partial checkpoint look complete.

SageMaker copies ``/opt/ml/checkpoints`` like that.
"""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

import pytest
from pure_state import same, state_of

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError

ORDERS = 12


def copy(source: Path, target: Path, files: list[Path]) -> None:
    for path in files:
        if path.exists():  # it may have been deleted as expired in the meantime
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.relative_to(source))


def check(folder: Path, steps: set[int]) -> int | None:
    """Check that the restored state is complete, if there is one; returns the step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            checkpoint = Checkpointer(folder).restore()
        except CheckpointError as error:
            assert "every checkpoint" in error.message
            return None
    if checkpoint is None:
        return None
    assert checkpoint.step in steps
    assert same(checkpoint.state, state_of(checkpoint.step))
    return checkpoint.step


@pytest.mark.parametrize("order", range(ORDERS))
def test_a_copy_cut_off_anywhere(tmp_path: Path, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.checkpoint.format.tensor_files.PART_SIZE", 64_000)
    source, target = tmp_path / "source", tmp_path / "target"
    chance = random.Random(order)
    with Checkpointer(source, keep=2) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, state_of(step))
            checkpointer.wait()
            files = sorted(path for path in source.rglob("*") if path.is_file())
            if order == 0:
                files.sort(key=lambda path: path.name != "manifest.json")  # the worst order
            else:
                chance.shuffle(files)
            copy(source, target, files[: chance.randrange(len(files))])
            check(target, set(range(1, step + 1)))
    copy(source, target, [path for path in source.rglob("*") if path.is_file()])
    assert check(target, {5}) == 5
    # A run that resumes from the copy also saves to it, over partially copied checkpoints.
    with warnings.catch_warnings(), Checkpointer(target, keep=2) as resumed:
        warnings.simplefilter("ignore", RuntimeWarning)
        resumed.restore()
        resumed.save(6, state_of(6))
    assert check(target, {6}) == 6
