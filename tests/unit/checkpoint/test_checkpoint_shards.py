"""Sharded states of a single rank, and rejected ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloudtrain.checkpoint import Checkpointer, Shard
from cloudtrain.checkpoint.sharded.saver import RankShards, merged, own_shards
from cloudtrain.checkpoint.tensors.chunks import Chunk
from cloudtrain.checkpoint.tensors.framework import local_shards
from cloudtrain.checkpoint.torch import restore_or_broadcast
from cloudtrain.errors import CheckpointError


def part(rows: int, begin: int, whole: int) -> Shard:
    return Shard(np.ones((rows, 2), np.float32), (whole, 2), (begin, 0))


def of_rank(**shards: Shard) -> RankShards:
    tensors = {name: local_shards(shard) for name, shard in shards.items()}
    assert None not in tensors.values()
    return own_shards(tensors, ())[0]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_a_single_process(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(3, 2)
    state = {"w": Shard(array, (3, 2), (0, 0)), "w[0:3,0:2]": np.zeros(2), "epoch": 3}
    with Checkpointer(tmp_path, sharded=True, every=2) as checkpointer:
        assert [step for step in range(1, 6) if checkpointer.maybe_save(step, state)] == [2, 4]
    checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None and checkpoint.step == 5  # saved at the end
    assert np.array_equal(checkpoint.state["w"], array)
    assert not checkpoint.state["w[0:3,0:2]"].any()
    into = {"w": Shard(np.zeros((1, 2)), (3, 2), (1, 0))}
    assert Checkpointer(tmp_path).restore(into=into) is not None
    assert np.array_equal(into["w"].array, array[1:2])


def test_shards_that_do_not_change_are_stored_once(tmp_path: Path) -> None:
    resting, moving = np.ones((3, 2)), np.ones((3, 2), np.float32)
    with Checkpointer(tmp_path, sharded=True, asynchronous=False) as checkpointer:
        for step in range(1, 5):
            moving += 1
            checkpointer.save(step, {"resting": Shard(resting, (3, 2), (0, 0)), "moving": moving})
    files = [path.parts[-3] for path in tmp_path.rglob("tensors-*")]
    assert len(files) == len(set(files)) + 1, "everything once, then only what changes"


def test_tied_shards_are_stored_once() -> None:
    shard = part(2, 0, 2)
    first, second = local_shards(shard), local_shards(Shard(shard.array, (2, 2), (0, 0)))
    assert first is not None and second is not None
    shards, leaves = own_shards({"a": first, "b": second}, ())
    assert list(leaves) == ["a[0:2,0:2]"]
    assert shards.chunks["a"] == shards.chunks["b"]


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        (
            [of_rank(w=part(2, 0, 3)), of_rank(w=part(2, 1, 3))],
            "parts [0:2,0:2] and [1:3,0:2], which overlap",
        ),
        ([of_rank(w=part(2, 0, 3)), of_rank(w=part(0, 2, 3))], "'w' has 6 elements, but only 4 of them"),
        (
            [of_rank(w=part(2, 0, 2)), of_rank(v=part(2, 0, 2))],
            "rank 1 has the sharded tensor 'v', but rank 0 does not",
        ),
        (
            [of_rank(w=part(2, 0, 3)), of_rank(w=part(1, 2, 4))],
            "[3, 2] of numpy on rank 0, but float32 [4, 2]",
        ),
    ],
)
def test_ranks_that_disagree(ranks: list[RankShards], problem: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        merged({"tree": {}, "tensors": {}}, ranks)
    assert problem in raised.value.message


def test_rank_shards_survive_json() -> None:
    import json

    shards = of_rank(w=part(2, 0, 3), empty=part(0, 3, 3))
    assert RankShards.from_json(json.loads(json.dumps(shards.to_json()))) == shards
    assert shards.chunks["w"][0].chunk == Chunk((0, 0), (2, 2))


@pytest.mark.parametrize(
    ("shape", "offsets"), [((3, 2), (2, 0)), ((3,), (0,)), ((3, 2), (-1, 0)), ((3, 2), (0,))]
)
def test_a_part_outside_of_the_whole(shape: tuple[int, ...], offsets: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError, match="does not fit into one"):
        Shard(np.ones((2, 2)), shape, offsets)


@pytest.mark.parametrize("options", [{"local": "/tmp/local"}, {"when_busy": "skip"}, {"when_busy": "queue"}])
def test_options_that_ranks_would_decide_differently(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="sharded=True cannot be combined with"):
        Checkpointer(tmp_path, sharded=True, **options)


def test_ranks_without_a_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    checkpointer = Checkpointer(tmp_path, sharded=True)
    for call in (
        lambda: checkpointer.save(1, {}),
        checkpointer.restore,
        lambda: checkpointer.maybe_save(1, {}),
    ):
        with pytest.raises(
            CheckpointError, match=r"one of 2 ranks, but torch\.distributed is not initialized"
        ):
            call()


def test_shards_are_rejected_without_sharded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as raised:
        Checkpointer(tmp_path).save(1, {"w": part(2, 0, 2)})
    assert "sharded=True" in raised.value.hint


@pytest.mark.parametrize("array", [torch.ones(2, 2).to_sparse(), np.array([["a", "b"]])])
def test_a_shard_of_something_else(tmp_path: Path, array: Any) -> None:
    shape = tuple(array.shape)
    with Checkpointer(tmp_path, sharded=True) as checkpointer:
        with pytest.raises(CheckpointError, match=r"state\['w'\] cannot be saved: it is a"):
            checkpointer.save(1, {"w": Shard(array, shape, (0,) * len(shape))})
        with pytest.raises(CheckpointError, match="checkpoint 1 was not saved"):
            checkpointer.wait()


def test_into_of_another_shape(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, sharded=True) as checkpointer:
        checkpointer.save(1, {"w": part(3, 0, 3)})
        with pytest.raises(CheckpointError, match=r"is float32 \[3, 2\] in the checkpoint, but float32 \[4"):
            checkpointer.restore(into={"w": part(2, 0, 4)})


def test_restore_or_broadcast_is_not_for_shards(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="this Checkpointer is sharded"):
        restore_or_broadcast(Checkpointer(tmp_path, sharded=True), model=torch.nn.Linear(1, 1))
