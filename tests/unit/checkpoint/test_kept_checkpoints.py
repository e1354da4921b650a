"""Checkpoints of earlier versions are read, bit for bit, and continued."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_trees import same
from kept_checkpoints import FOLDER, STEPS, array_at, shards_at, state_at

from cloudtrain.checkpoint import Checkpointer, Shard

VERSIONS = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / request.param, tmp_path / "kept"))


@pytest.mark.parametrize("step", STEPS)
def test_every_value_is_restored(kept: Path, step: int) -> None:
    checkpoint = Checkpointer(kept / "tree").restore(step)
    assert checkpoint is not None
    assert same(checkpoint.state, state_at(step))
    assert checkpoint.state["tied"][0] is checkpoint.state["tied"][1]


@pytest.mark.parametrize("step", STEPS)
def test_shards_are_restored_whole_and_in_part(kept: Path, step: int) -> None:
    checkpoint = Checkpointer(kept / "sharded").restore(step)
    assert checkpoint is not None
    assert np.array_equal(checkpoint.state["array"], array_at(step))
    part = Shard(np.zeros((2, 2)), (6, 2), (3, 0))
    assert Checkpointer(kept / "sharded").restore(step, into={"array": part}) is not None
    assert np.array_equal(part.array, array_at(step)[3:5])


@pytest.mark.parametrize(("kind", "sharded"), [("tree", False), ("sharded", True)])
def test_the_same_folder_takes_more_steps(kept: Path, kind: str, sharded: bool) -> None:
    make = shards_at if sharded else state_at
    with Checkpointer(kept / kind, asynchronous=False, sharded=sharded) as checkpointer:
        assert checkpointer.restore() is not None
        checkpointer.save(3, make(3))
    found = Checkpointer(kept / kind).restore()
    assert found is not None and found.step == 3
    assert Checkpointer(kept / kind).restore(1) is not None
