"""Every kind of damage is detected, and the previous checkpoint is used instead."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_trees import same, saver

from cloudtrain.checkpoint.format import manifest
from cloudtrain.errors import CheckpointError


def state_of(step: int) -> dict[str, object]:
    return {"weights": np.full(100, step, dtype=np.float32), "epoch": step}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RANK", raising=False)
    checkpointer = saver(tmp_path)
    for step in (1, 2, 3):
        checkpointer.save(step, state_of(step))
    return tmp_path


def file(folder: Path, step: int, name: str) -> Path:
    return next((folder / f"step-{step:012d}").rglob(name))


def truncate(folder: Path, name: str) -> None:
    path = file(folder, 3, name)
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder: Path, name: str) -> None:
    path = file(folder, 3, name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap(folder: Path, name: str) -> None:
    shutil.copyfile(file(folder, 2, name), file(folder, 3, name))


def remove(folder: Path, name: str) -> None:
    file(folder, 3, name).unlink()


def empty(folder: Path, name: str) -> None:
    file(folder, 3, name).write_bytes(b"")


def pipe(folder: Path, name: str) -> None:
    """Without a writer: to open it as a file would wait forever."""
    path = file(folder, 3, name)
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["manifest.json", "tree.json", "tensors-00000.safetensors"])
@pytest.mark.parametrize("harm", [truncate, flip, swap, remove, empty, pipe])
def test_damage_is_detected_and_skipped(folder: Path, harm: Callable[[Path, str], None], name: str) -> None:
    harm(folder, name)
    checkpointer = saver(folder)
    if (harm, name) == (remove, "manifest.json"):  # then the checkpoint does not exist
        assert checkpointer.steps() == [1, 2]
        checkpoint = checkpointer.restore()
    else:
        with pytest.raises(CheckpointError, match=r"checkpoint 3 in .* is damaged"):
            saver(folder).restore(3)
        with pytest.warns(RuntimeWarning, match=r"checkpoint 3 in .* is damaged"):
            checkpoint = checkpointer.restore()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert same(checkpoint.state, state_of(2))


def test_every_flipped_bit_is_detected(folder: Path) -> None:
    chance = random.Random(0)
    files = sorted(path for path in (folder / "step-000000000003").rglob("*") if path.is_file())
    assert len(files) == 3
    for path in files:
        whole = path.read_bytes()
        for _ in range(100):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match="is damaged"):
                saver(folder).restore(3)
        path.write_bytes(whole)
    assert saver(folder).restore(3) is not None


def test_training_replaces_a_damaged_step(folder: Path) -> None:
    flip(folder, "tree.json")
    resumed = saver(folder)
    with pytest.warns(RuntimeWarning):
        resumed.restore()
    resumed.save(3, state_of(3))
    resumed.save(4, state_of(4))
    assert resumed.steps() == [2, 3, 4]
    checkpoint = saver(folder).restore(3)
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(3))


def test_a_damaged_step_does_not_count_as_kept(folder: Path) -> None:
    flip(folder, "tree.json")
    resumed = saver(folder, keep=2)
    with pytest.warns(RuntimeWarning):
        resumed.restore()
    resumed.save(4, state_of(4))
    assert resumed.steps() == [2, 3, 4]
    resumed.save(5, state_of(5))
    assert resumed.steps() == [4, 5]


def test_damage_of_all_is_an_error_not_a_first_start(folder: Path) -> None:
    for path in folder.rglob("tree.json"):
        path.unlink()
    everything = pytest.raises(CheckpointError, match=r"every checkpoint in .* 1, 2, 3")
    with pytest.warns(RuntimeWarning), everything:
        saver(folder).restore()


def test_a_manifest_as_long_as_a_tombstone_is_damaged(folder: Path) -> None:
    for path in folder.glob("step-*/manifest.json"):
        os.truncate(path, len(manifest.TOMBSTONE))
    everything = pytest.raises(CheckpointError, match=r"every checkpoint in .* 1, 2, 3")
    with pytest.warns(RuntimeWarning), everything:
        saver(folder).restore()


def test_a_later_format_requires_an_upgrade(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as later:
        later.setattr(manifest, "VERSION", manifest.VERSION + 1)
        writer = saver(folder)
        writer.restore()
        writer.save(4, state_of(4))
    with pytest.raises(CheckpointError, match=r"step 4 was saved in format 2.*\n  Upgrade cloudtrain"):
        saver(folder).restore()
    saver(folder, keep=1).save(5, state_of(5))
    assert "cannot be removed and are kept: step 4 was saved in format 2" in caplog.text
    assert saver(folder).steps() == [2, 3, 4, 5]


def test_foreign_files_are_not_checkpoints(folder: Path) -> None:
    (folder / "step-000000000009").mkdir()
    (folder / "step-000000000009" / "notes.txt").write_text("mine")
    (folder / "step-9").mkdir()
    (folder / "step-9" / "manifest.json").write_text(json.dumps({}))
    assert saver(folder).steps() == [1, 2, 3]
