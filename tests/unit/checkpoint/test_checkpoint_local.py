"""Every checkpoint is also in a fast local folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_trees import same, saver

from cloudtrain.errors import CheckpointError


def state_of(step: int) -> dict[str, Any]:
    return {"weights": np.full(100, step, dtype=np.float32), "frozen": np.ones(100)}


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "durable", tmp_path / "local"


def restored(both: tuple[Path, Path]) -> int:
    checkpoint = saver(both[0], local=both[1]).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(checkpoint.step))
    return checkpoint.step


def test_both_stores_have_every_checkpoint(both: tuple[Path, Path]) -> None:
    checkpointer = saver(both[0], local=both[1], keep=2)
    for step in range(1, 4):
        checkpointer.save(step, state_of(step))
    assert checkpointer.uri == both[0].as_uri()
    assert [saver(place).steps() for place in both] == [[2, 3], [2, 3]]


def test_either_store_is_enough(both: tuple[Path, Path]) -> None:
    checkpointer = saver(both[0], local=both[1])
    for step in (1, 2):
        checkpointer.save(step, state_of(step))
    for lost in both:
        kept = lost.rename(lost.with_suffix(".kept"))
        assert restored(both) == 2
        kept.rename(lost)


def test_an_intact_local_checkpoint_is_preferred(both: tuple[Path, Path]) -> None:
    saver(both[0], local=both[1]).save(1, state_of(1))
    for path in list(both[0].rglob("tree.json")):
        path.unlink()
    assert restored(both) == 1


def test_the_durable_checkpoint_is_used_if_the_local_one_is_damaged(both: tuple[Path, Path]) -> None:
    checkpointer = saver(both[0], local=both[1])
    for step in (1, 2):
        checkpointer.save(step, state_of(step))
    for path in (both[1] / "step-000000000002").rglob("tree.json"):
        path.unlink()
    with pytest.warns(RuntimeWarning, match=r"checkpoint 2 in .*/local is damaged"):
        assert restored(both) == 2


def test_a_new_machine_resumes_and_saves_to_both(both: tuple[Path, Path]) -> None:
    saver(both[0], local=both[1]).save(1, state_of(1))
    shutil.rmtree(both[1])
    resumed = saver(both[0], local=both[1])
    resumed.restore()
    assert resumed.save(1, state_of(1))
    assert not resumed.save(1, state_of(1))
    resumed.save(2, state_of(2))
    assert [saver(place).steps() for place in both] == [[1, 2], [1, 2]]
    assert restored(both) == 2


def test_a_failure_of_the_durable_store_is_raised(both: tuple[Path, Path]) -> None:
    both[0].write_text("in the way")
    checkpointer = saver(both[0], local=both[1])
    with pytest.raises(CheckpointError, match="checkpoint 1 was not saved"):
        checkpointer.save(1, state_of(1))
    both[0].unlink()
    assert restored(both) == 1
    checkpointer.save(2, state_of(2))
    assert [saver(place).steps() for place in both] == [[2], [1, 2]]
