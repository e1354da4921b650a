"""Leftovers of interrupted saves are deleted as soon as provably nothing needs them, and no sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_trees import same, saver

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.errors import CheckpointError, Unreachable
from cloudtrain.storage.file import FileStore


def state_of(step: int) -> dict[str, Any]:
    return {"weights": np.full(100, step, dtype=np.float32)}


def interrupted(folder: Path, step: int) -> list[Path]:
    """The objects left by a save of ``step`` that is killed before it writes the manifest."""
    saver(folder / "elsewhere").save(step, state_of(step))
    name = f"step-{step:012d}"
    (folder / "elsewhere" / manifest_key(step)).unlink()
    (save,) = (folder / "elsewhere" / name).iterdir()
    (folder / name).mkdir(exist_ok=True)
    save = save.rename(folder / name / save.name)
    return sorted(save.iterdir())


def there(paths: list[Path]) -> bool:
    found = {path.exists() for path in paths}
    assert len(found) == 1
    return found.pop()


def test_orphans_of_a_step_that_is_saved_again(tmp_path: Path) -> None:
    left = interrupted(tmp_path, 5)
    checkpointer = saver(tmp_path)
    checkpointer.save(4, state_of(4))
    assert there(left)  # its writer may be alive and about to commit
    checkpointer.save(5, state_of(5))
    assert not there(left)
    assert checkpointer.steps() == [4, 5]


def test_orphans_of_a_step_that_is_skipped(tmp_path: Path) -> None:
    left = interrupted(tmp_path, 5)
    checkpointer = saver(tmp_path)
    checkpointer.save(6, state_of(6))
    assert not there(left)
    assert checkpointer.steps() == [6]
    # It can no longer be committed, and no one sees it.
    assert not FileStore(tmp_path).create(manifest_key(5), b"late")
    with pytest.raises(CheckpointError, match="no checkpoint of step 5"):
        checkpointer.restore(5)


def test_a_writer_whose_step_got_a_tombstone_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = saver(tmp_path), saver(tmp_path)
    create = FileStore.create

    def overtaken(store: FileStore, key: str, data: bytes) -> bool:
        if key == manifest_key(5):
            monkeypatch.setattr(FileStore, "create", create)
            fast.save(6, state_of(6))
        return create(store, key, data)

    monkeypatch.setattr(FileStore, "create", overtaken)
    with pytest.raises(CheckpointError, match="another run has saved step 5"):
        slow.save(5, state_of(5))
    checkpointer = Checkpointer(tmp_path)
    assert checkpointer.steps() == [6]
    checkpoint = checkpointer.restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(6))


def test_a_step_with_a_tombstone_can_be_saved_by_a_run_that_resumes_before_it(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path)
    checkpointer.save(4, state_of(4))
    interrupted(tmp_path, 5)
    checkpointer.save(6, state_of(6))
    for path in (tmp_path / "step-000000000006").rglob("tree.json"):
        path.unlink()
    resumed = saver(tmp_path)
    with pytest.warns(RuntimeWarning):
        resumed.restore()
    resumed.save(5, state_of(5))
    checkpoint = saver(tmp_path).restore(5)
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(5))


def test_writers_of_different_steps_fail(tmp_path: Path) -> None:
    one, other = saver(tmp_path), saver(tmp_path)
    one.save(1, state_of(1))
    other.save(2, state_of(2))
    with pytest.raises(CheckpointError, match="another run has saved step 2"):
        one.save(3, state_of(3))
    other.save(3, state_of(3))
    assert other.steps() == [1, 2, 3]


def test_a_writer_whose_reused_objects_are_deleted_concurrently_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have referred to the frozen layer of step 1, which the other run deletes."""
    one, other = saver(tmp_path), saver(tmp_path, keep=1)
    one.save(1, state_of(1))
    create = FileStore.create

    def overtaken(store: FileStore, key: str, data: bytes) -> bool:
        if key == manifest_key(3):
            monkeypatch.setattr(FileStore, "create", create)
            other.save(2, state_of(2))
        return create(store, key, data)

    monkeypatch.setattr(FileStore, "create", overtaken)
    with pytest.raises(CheckpointError, match="another run has deleted checkpoints"):
        one.save(3, state_of(1))
    checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert same(checkpoint.state, state_of(2))


def test_a_reader_whose_checkpoint_is_deleted_concurrently_uses_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example when one process trains and another evaluates."""
    trains = saver(tmp_path, keep=1)
    trains.save(1, state_of(1))
    read = FileStore.read

    def overtaken(store: FileStore, key: str) -> bytes:
        monkeypatch.setattr(FileStore, "read", read)
        trains.save(2, state_of(2))
        return read(store, key)

    monkeypatch.setattr(FileStore, "read", overtaken)
    with pytest.warns(RuntimeWarning, match="its manifest is gone"):
        checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert same(checkpoint.state, state_of(2))


def test_foreign_objects_next_to_checkpoints_are_kept(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    checkpointer = saver(tmp_path, keep=1)
    for step in range(1, 4):
        checkpointer.save(step, state_of(step))
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("there", [True, False])
def test_a_commit_without_a_response_is_not_mistaken_for_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    create = FileStore.create

    def silent(store: FileStore, key: str, data: bytes) -> bool:
        if there:
            create(store, key, data)
        raise Unreachable("the connection broke")

    checkpointer = saver(tmp_path)
    checkpointer.save(1, state_of(1))
    with monkeypatch.context() as broken:
        broken.setattr(FileStore, "create", silent)
        with pytest.raises(CheckpointError, match="checkpoint 2 was not saved: the connection broke"):
            checkpointer.save(2, state_of(2))
    checkpointer.save(3, state_of(3))
    assert checkpointer.steps() == ([1, 2, 3] if there else [1, 3])
    for step in checkpointer.steps():
        checkpoint = Checkpointer(tmp_path).restore(step)
        assert checkpoint is not None
        assert same(checkpoint.state, state_of(step))
