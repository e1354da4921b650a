"""Background saves, as the training sees them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_trees import same

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError
from cloudtrain.observe.checkpointing import Unspoiled, recover, spoil
from cloudtrain.storage.file import FileStore

TIMEOUT = 30


class Gate:
    """Blocks every write to a folder until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(TIMEOUT)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    write = FileStore.write

    def late(store: FileStore, key: str, data: Any, **options: Any) -> None:
        gate.wait()
        write(store, key, data, **options)

    monkeypatch.setattr(FileStore, "write", late)
    yield gate
    gate.open()


def state_of(step: int) -> dict[str, Any]:
    return {"weights": np.full(1000, step, dtype=np.float32)}


def restored(folder: Path, step: int) -> Any:
    checkpoint = Checkpointer(folder).restore(step)
    assert checkpoint is not None
    return checkpoint.state


def test_save_returns_before_the_commit_and_saves_the_state_of_the_call(tmp_path: Path, gate: Gate) -> None:
    state = state_of(1)
    checkpointer = Checkpointer(tmp_path)
    assert checkpointer.save(1, state)
    state["weights"] += 1
    assert gate.reached.wait(TIMEOUT)
    assert checkpointer.steps() == []
    gate.open()
    checkpointer.wait()
    assert checkpointer.steps() == [1]
    assert same(restored(tmp_path, 1), state_of(1))


def test_skip_saves_nothing_while_busy(tmp_path: Path, gate: Gate) -> None:
    checkpointer = Checkpointer(tmp_path, when_busy="skip")
    assert checkpointer.save(1, state_of(1))
    assert not checkpointer.save(2, state_of(2))
    gate.open()
    checkpointer.wait()
    assert checkpointer.save(3, state_of(3))
    checkpointer.close()
    assert checkpointer.steps() == [1, 3]


def test_queue_keeps_only_the_newest(tmp_path: Path, gate: Gate) -> None:
    checkpointer = Checkpointer(tmp_path, when_busy="queue")
    for step in (1, 2, 3, 4):
        assert checkpointer.save(step, state_of(step))
        assert gate.reached.wait(TIMEOUT)
    gate.open()
    checkpointer.close()
    assert checkpointer.steps() == [1, 4]
    for step in (1, 4):
        assert same(restored(tmp_path, step), state_of(step))


def test_wait_blocks_and_saves_every_step(tmp_path: Path, gate: Gate) -> None:
    checkpointer = Checkpointer(tmp_path, keep=None)
    threading.Timer(0.2, gate.open).start()
    for step in range(1, 6):
        assert checkpointer.save(step, state_of(step))
    checkpointer.close()
    assert checkpointer.steps() == [1, 2, 3, 4, 5]
    for step in range(1, 6):
        assert same(restored(tmp_path, step), state_of(step))


def blocked(folder: Path) -> Path:
    """A file in the place of the checkpoints' folder, so that nothing can be written below it."""
    folder.write_text("in the way")
    return folder


@pytest.mark.parametrize("call", ["save", "wait", "close"])
def test_a_failure_is_raised_by_the_next_call(
    tmp_path: Path, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = blocked(tmp_path / "run")
    checkpointer = Checkpointer(folder)
    assert checkpointer.save(5, state_of(5))
    next_call = {
        "save": lambda: checkpointer.save(6, state_of(6)),
        "wait": checkpointer.wait,
        "close": checkpointer.close,
    }[call]
    with pytest.raises(CheckpointError, match="checkpoint 5 was not saved: ") as caught:
        next_call()
    assert caught.value.__cause__ is not None
    assert "checkpoint 5 was not saved" in caplog.text
    checkpointer.wait()  # raised only once


def test_wrong_results_of_aborted_collectives_are_never_committed(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, state_of(1))
    checkpointer.wait()
    try:
        spoil("collectives were aborted")
        checkpointer.save(2, state_of(1))
        with pytest.raises(
            CheckpointError, match="checkpoint 2 was not saved: its state is wrong: collectives"
        ):
            checkpointer.wait()
    finally:
        recover()
    before = Unspoiled()
    spoil("collectives were aborted")
    recover()
    assert before.problem(), "a copy that was begun before holds wrong results still"
    checkpointer.save(3, state_of(1))
    checkpointer.close()
    assert Checkpointer(tmp_path).steps() == [1, 3]


def test_saving_continues_after_a_failure(tmp_path: Path) -> None:
    folder = blocked(tmp_path / "run")
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, state_of(1))
    with pytest.raises(CheckpointError):
        checkpointer.wait()
    folder.unlink()
    checkpointer.save(2, state_of(2))
    checkpointer.wait()
    assert checkpointer.steps() == [2]


def test_an_error_of_the_training_is_not_hidden(tmp_path: Path) -> None:
    folder = blocked(tmp_path / "run")
    with pytest.raises(ZeroDivisionError), Checkpointer(folder) as checkpointer:
        checkpointer.save(1, state_of(1))
        raise ZeroDivisionError


def test_a_closed_checkpointer_restores_but_does_not_save(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state_of(1))
    assert checkpointer.restore() is not None
    with pytest.raises(CheckpointError, match="is closed"):
        checkpointer.save(2, state_of(2))


def test_a_forked_child_never_writes(tmp_path: Path, gate: Gate) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, state_of(1))
    assert gate.reached.wait(TIMEOUT)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            checkpointer.wait()  # nothing to wait for
            checkpointer.save(2, state_of(2))
        except CheckpointError as error:
            status = 0 if "forked" in error.message else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.open()
    checkpointer.close()
    assert checkpointer.steps() == [1]


def test_when_busy_is_checked(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="when_busy='drop' is unknown\n  Known: wait, skip, queue"):
        Checkpointer(tmp_path, when_busy="drop")
