"""Unchanged tensors are stored once, and kept while a checkpoint refers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_trees import same, saver

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import step_of
from cloudtrain.checkpoint.inspect import find
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import FileStore

LAYERS = 8
SIZE = 4096
"""Bytes per layer."""


@pytest.fixture(autouse=True)
def _small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.checkpoint.format.tensor_files.PART_SIZE", 2 * SIZE)


def state_of(step: int) -> dict[str, Any]:
    """Alternating frozen and trained layers, as in adapter training."""
    noise = np.random.default_rng(0)
    return {
        f"{index}/{kind}": noise.standard_normal(SIZE // 8) + (step if kind == "adapter" else 0)
        for index in range(LAYERS)
        for kind in ("frozen", "adapter")
    }


def written(folder: Path, step: int) -> int:
    """Bytes of tensors in the folder of ``step``, without headers."""
    files = (folder / f"step-{step:012d}").rglob("*.safetensors")
    return sum(path.stat().st_size // SIZE * SIZE for path in files)


def check(folder: Path) -> list[int]:
    """Check that every checkpoint is intact; returns the steps."""
    checkpointer = Checkpointer(folder)
    for step in checkpointer.steps():
        checkpoint = checkpointer.restore(step)
        assert checkpoint is not None
        assert same(checkpoint.state, state_of(step))
    return checkpointer.steps()


def test_frozen_tensors_are_not_written_again(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, keep=None)
    for step in range(1, 6):
        checkpointer.save(step, state_of(step))
    assert written(tmp_path, 1) == 2 * LAYERS * SIZE
    # The second save shows which tensors are trained; from the third on only those are written.
    assert [written(tmp_path, step) for step in (3, 4, 5)] == [LAYERS * SIZE] * 3
    assert check(tmp_path) == [1, 2, 3, 4, 5]


def test_an_unchanged_state_is_not_written_again(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path)
    checkpointer.save(1, state_of(1))
    checkpointer.save(2, state_of(1))
    assert written(tmp_path, 2) == 0


def test_objects_are_kept_while_a_checkpoint_refers_to_them(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, keep=2)
    for step in range(1, 10):
        checkpointer.save(step, state_of(step))
        assert check(tmp_path) == [step] if step == 1 else [step - 1, step]
    # All objects of the last two checkpoints, and nothing else.
    total = sum(written(tmp_path, step) for step in range(1, 10))
    assert total == (LAYERS + 2 * LAYERS) * SIZE


def test_objects_are_deleted_with_the_last_checkpoint_that_refers_to_them(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, keep=1)
    for step in range(1, 4):
        checkpointer.save(step, state_of(0))
    checkpointer.save(4, {"weights": np.ones(3)})
    assert [path.name for path in tmp_path.iterdir() if any(path.rglob("*.*"))] == ["step-000000000004"]


def test_a_resumed_run_does_not_write_frozen_tensors_again(tmp_path: Path) -> None:
    first = saver(tmp_path)
    for step in (1, 2, 3):
        first.save(step, state_of(step))
    resumed = saver(tmp_path)
    resumed.restore()
    resumed.save(4, state_of(4))
    assert written(tmp_path, 4) == LAYERS * SIZE
    assert check(tmp_path) == [2, 3, 4]


def test_objects_deleted_by_others_are_written_again(tmp_path: Path) -> None:
    """A lifecycle rule of the bucket may delete old objects, such as those of frozen tensors."""
    checkpointer = saver(tmp_path, keep=None)
    for step in (1, 2, 3):
        checkpointer.save(step, state_of(step))
    frozen = next(entry for entry in find(FileStore(tmp_path), 3).objects if step_of(entry.key) != 3)
    (tmp_path / frozen.key).unlink()
    checkpointer.save(4, state_of(4))
    checkpoint = Checkpointer(tmp_path).restore(4)
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(4))


def test_damaged_objects_are_not_referred_to_again(tmp_path: Path) -> None:
    saver(tmp_path).save(1, state_of(1))
    resumed = saver(tmp_path)
    resumed.restore()
    resumed.save(2, state_of(1))
    for path in (tmp_path / "step-000000000001").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    again = saver(tmp_path)
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match="every checkpoint"):
        again.restore()
    again.save(3, state_of(3))
    checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(3))


def test_a_tensor_larger_than_an_object_is_stored_in_pieces(tmp_path: Path) -> None:
    state = {"large": np.arange(SIZE, dtype=np.complex128), "small": np.float32([1, 2, 3])}
    checkpointer = saver(tmp_path)
    checkpointer.save(1, state)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 9
    state["large"][-1] = 0
    checkpointer.save(2, state)
    assert written(tmp_path, 2) == 2 * SIZE
    checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state)
