"""Damage anywhere: in the memory of a host, before a commit or a restore, in what was put on disk, in the storage.

Whatever is damaged is never loaded and never committed; the next source is taken, with a sentence.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from host_memory import make_host_memory

from cloudtrain.checkpoint import Checkpointer, Shard
from cloudtrain.checkpoint.memory.commit import commit_newest
from cloudtrain.errors import CheckpointError

ROUNDS = 60
STORED, EARLIER, NEWEST = 1, 2, 3
"""Step 1 is in the storage, the others in memory."""


def state_of(step: int, *, sharded: bool) -> dict[str, Any]:
    numbers = np.random.default_rng(step)
    own: Any = numbers.random(600)
    return {"own": Shard(own, (600,), (0,)) if sharded else own, "whole": numbers.random(300), "step": step}


def is_whole(state: Any, step: int, *, sharded: bool) -> bool:
    wanted = state_of(step, sharded=False)
    own = state["own"].values if sharded and isinstance(state["own"], Shard) else state["own"]
    same = np.array_equal(np.asarray(own), wanted["own"]) and np.array_equal(state["whole"], wanted["whole"])
    return bool(same) and state["step"] == step


@pytest.fixture(params=[False, True], ids=["plain", "sharded"])
def sharded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bool]:
    if request.param:
        dist.init_process_group("gloo", init_method=(tmp_path / "group").as_uri(), rank=0, world_size=1)
    yield request.param
    if request.param:
        dist.destroy_process_group()


def damage(path: Path, chance: random.Random) -> str:
    """Flip a bit, replace bytes, or cut the file off, in place as the memory itself would."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    kind = chance.choice(["bit", "bit", "bytes", "cut"])
    if kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        data[at : at + 8] = bytes(byte ^ 0xA5 for byte in data[at : at + 8])
    else:
        del data[at:]
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
    return f"{kind} {at} of {path.name}"


@pytest.mark.parametrize("place", ["own", "committed", "unsaved", "storage"])
def test_what_is_damaged_is_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, *, sharded: bool
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    memory, run = make_host_memory(tmp_path / "memory", monkeypatch), tmp_path / "run"
    with Checkpointer(run, sharded=sharded, save_at_end=False) as checkpointer:
        checkpointer.save(STORED, state_of(STORED, sharded=sharded))
        checkpointer.wait()
        for step in (EARLIER, NEWEST):
            assert checkpointer.save(step, state_of(step, sharded=sharded), to="memory")
            checkpointer._sealing.wait()
    if place == "unsaved":
        list(commit_newest(memory, None, open_at=lambda _uri: _fail(), elsewhere=tmp_path / "unsaved"))
        shutil.copytree(tmp_path / "unsaved" / "1", run, dirs_exist_ok=True)
    for folder in (memory, run):
        shutil.copytree(folder, tmp_path / f"{folder.name}.whole")
    chance = random.Random(int(os.environ.get("CLOUDTRAIN_SEED", "11")))
    steps_seen = set()
    for _ in range(ROUNDS):
        for folder in (memory, run):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / f"{folder.name}.whole", folder)
        damaged = run if place in ("storage", "unsaved") else memory
        files = [path for path in damaged.rglob("*") if path.is_file() and path.stat().st_size > 5]
        files = [
            path for path in files if path.suffix in (".data", ".json", ".tensors", ".bin", ".safetensors")
        ]
        what = damage(chance.choice(files), chance)
        if place in ("storage", "unsaved"):  # of a host whose memory is lost
            shutil.rmtree(memory)
            memory.mkdir(0o700)
            (memory / "space").write_text(str(1 << 30))
        if place == "committed":
            list(commit_newest(memory, None))
            monkeypatch.delenv("CLOUDTRAIN_CHECKPOINT_MEMORY", raising=False)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = Checkpointer(run, sharded=sharded).restore()
            except CheckpointError as error:
                assert place == "storage" and "damaged" in error.message, what
                continue
        assert found is not None, what
        assert is_whole(found.state, found.step, sharded=sharded), what
        steps_seen.add(found.step)
        if place == "own" and found.step < NEWEST:
            assert any("is damaged" in str(one.message) for one in said), what
    assert steps_seen >= {"own": {2, 3}, "committed": {2, 3}, "unsaved": {1, 3}, "storage": set()}[place], (
        steps_seen
    )


def _fail() -> Any:
    raise OSError(5, "away")
