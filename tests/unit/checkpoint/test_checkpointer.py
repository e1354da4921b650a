"""The public behavior of `Checkpointer` on a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_trees import same, saver

from cloudtrain.checkpoint import is_checkpoint_key
from cloudtrain.errors import CheckpointError
from cloudtrain.observe import heartbeat


def state_of(step: int) -> dict[str, Any]:
    return {"weights": np.full(3, step, dtype=np.float32), "epoch": step}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "SAGEMAKER_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "run 1"


def keys(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_first_start_finds_nothing(folder: Path) -> None:
    checkpointer = saver(folder)
    assert checkpointer.restore() is None
    assert checkpointer.steps() == []


def test_save_and_restore(folder: Path) -> None:
    model = torch.nn.Linear(4, 2)
    state = {"model": dict(model.state_dict()), "epoch": 3, "random": (1, [2.5, None])}
    saver(folder).save(3, state, {"loss": 0.25, "best": np.float32(0.5), "worst": float("nan")})

    checkpoint = saver(folder).restore()

    assert checkpoint is not None
    assert checkpoint.step == 3
    assert same(checkpoint.state, state)
    assert same(checkpoint.metrics, {"loss": 0.25, "best": 0.5, "worst": float("nan")})


def test_large_states_are_stored_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.checkpoint.format.tensor_files.PART_SIZE", 1024)
    state = {str(index): np.random.default_rng(index).bytes(index) for index in range(3)}
    state |= {f"t{index}": np.full(index * 50, index, dtype=np.float64) for index in range(10)}
    saver(folder).save(1, state)
    assert len([key for key in keys(folder) if key.endswith(".safetensors")]) == 22
    checkpoint = saver(folder).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state)


def test_the_manifest_describes_the_save(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("SAGEMAKER_JOB_NAME", "digits-1")
    saver(folder).save(7, state_of(7), {"loss": 1})
    manifest = json.loads((folder / "step-000000000007" / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["version"], manifest["step"]) == ("cloudtrain-checkpoint", 1, 7)
    assert (manifest["world_size"], manifest["job"], manifest["metrics"]) == (2, "digits-1", {"loss": 1})
    assert manifest["versions"].keys() >= {"cloudtrain", "python", "numpy"}
    named = [manifest["tree"]["key"], *(entry["key"] for entry in manifest["tensors"])]
    assert keys(folder) == sorted(["step-000000000007/manifest.json", *named])


def test_the_newest_are_kept(folder: Path) -> None:
    checkpointer = saver(folder, keep=2)
    for step in range(5):
        checkpointer.save(step, state_of(step))
    assert checkpointer.steps() == [3, 4]
    assert {key.split("/")[0] for key in keys(folder)} == {"step-000000000003", "step-000000000004"}


def test_all_are_kept_on_request(folder: Path) -> None:
    checkpointer = saver(folder, keep=None)
    for step in range(5):
        checkpointer.save(step, state_of(step))
    assert checkpointer.steps() == [0, 1, 2, 3, 4]
    checkpoint = checkpointer.restore(2)
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(2))


def test_a_restored_step_is_not_saved_again(folder: Path) -> None:
    saver(folder).save(10, state_of(10))
    before = keys(folder)
    resumed = saver(folder)
    resumed.restore()
    resumed.save(10, state_of(10))
    assert keys(folder) == before
    resumed.save(11, state_of(11))
    resumed.save(10, state_of(10))
    assert resumed.steps() == [10, 11]


def test_a_run_that_does_not_resume_cannot_mix_with_the_previous_one(folder: Path) -> None:
    saver(folder).save(10, state_of(10))
    before = keys(folder)
    for step in (1, 10):
        with pytest.raises(CheckpointError, match=rf"step {step} cannot be saved .* already has step 10"):
            saver(folder).save(step, state_of(step))
    assert keys(folder) == before


def test_other_ranks_restore_and_write_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver(folder).save(1, state_of(1))
    before = keys(folder)
    monkeypatch.setenv("RANK", "1")
    other = saver(folder)
    other.save(2, state_of(2))
    assert keys(folder) == before
    checkpoint = other.restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(1))


def test_a_save_is_a_heartbeat(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(folder.parent / "heartbeat")
    heartbeat.create(file)
    monkeypatch.setenv("CLOUDTRAIN_HEARTBEAT_FILE", file)
    monkeypatch.setattr("cloudtrain.observe.heartbeat.INTERVAL", 0)
    monkeypatch.setattr("cloudtrain.observe.heartbeat._last", 0.0)  # of a test whose clock is ahead
    saver(folder).save(1, state_of(1))
    assert heartbeat.read(file)


def test_the_default_uri_is_the_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert saver().uri == (folder.parent / "checkpoints").as_uri()
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(folder))
    assert saver().uri == (folder / "checkpoints").as_uri()


@pytest.mark.parametrize(
    ("step", "state", "metrics", "message"),
    [
        (-1, {}, {}, "step -1 is out of range"),
        (10**12, {}, {}, "step 1000000000000 is out of range"),
        (1.5, {}, {}, "step 1.5 is not a whole number"),
        ("latest", {}, {}, "step 'latest' is not a whole number"),
        (1, {"x": object()}, {}, "state['x'] cannot be saved"),
        (1, {}, {"loss": "low"}, "metrics['loss'] is not a number: 'low'"),
        (1, {}, 0.5, "metrics=0.5 is not a mapping"),
        (1, {}, {"loss": torch.ones(2)}, "metrics['loss'] is not a number"),
    ],
)
def test_bad_saves_leave_nothing_behind(
    folder: Path, step: Any, state: Any, metrics: Any, message: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        saver(folder).save(step, state, metrics)
    assert caught.value.message.startswith(message)
    assert caught.value.hint
    assert not folder.exists() or keys(folder) == []


def test_a_step_that_does_not_exist(folder: Path) -> None:
    checkpointer = saver(folder)
    checkpointer.save(4, state_of(4))
    with pytest.raises(CheckpointError, match="has no checkpoint of step 3\n  Steps: 4"):
        checkpointer.restore(3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 0}, "keep=0 is not a number of checkpoints"),
        ({"keep": "3"}, "keep='3' is not a number of checkpoints"),
        ({"keep": 2.5}, "keep=2.5 is not a number of checkpoints"),
        ({"best": ("loss", "least")}, "best=('loss', 'least') is not a metric"),
        ({"best": ("loss",)}, "best=('loss',) is not a metric"),
        ({"best": 3}, "best=3 is not a metric"),
        ({"uri": 3}, "3 is neither a URI nor a path"),
        ({"uri": b"/folder"}, "b'/folder' is neither a URI nor a path"),
        ({"uri": "/same", "local": "file:///same"}, "local and uri are both file:///same"),
    ],
)
def test_bad_arguments(folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        saver(**{"uri": folder, **arguments})
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("step-000000000010/manifest.json", True),
        ("step-000000000010/ab/tensors-00000.safetensors", True),
        ("attempts/0123456789abcdef/000001-steps.json", True),
        ("attempts/notes.json", False),
        ("elastic/0123456789abcdef/run-0/000000000017.pt", True),
        ("elastic/model.pt", False),
        ("step-10/manifest.json", False),
        ("old/step-000000000010/manifest.json", False),
        ("model.pt", False),
    ],
)
def test_keys_of_checkpoints(key: str, expected: bool) -> None:
    assert is_checkpoint_key(key) is expected
