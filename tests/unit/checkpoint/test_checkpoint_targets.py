"""A checkpoint is restored into existing tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_trees import same, saver

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError


def restored(folder: Path, into: Any) -> Any:
    checkpoint = Checkpointer(folder).restore(into=into)
    assert checkpoint is not None
    return checkpoint.state


def test_the_tensors_of_a_model_are_filled(tmp_path: Path) -> None:
    saved, model = torch.nn.Linear(40, 20), torch.nn.Linear(40, 20)
    saver(tmp_path).save(1, {"model": saved.state_dict(), "epoch": 3})
    state = restored(tmp_path, {"model": model.state_dict()})
    assert same(dict(model.state_dict()), dict(saved.state_dict()))
    assert state["model"]["weight"].data_ptr() == model.weight.data_ptr()
    assert state["epoch"] == 3


@pytest.mark.parametrize(
    "target",
    [
        torch.zeros(4, 3).T,
        torch.zeros(6, 8)[::2, ::2],
        torch.nn.Parameter(torch.zeros(3, 4)),
        np.zeros((3, 4), dtype=np.float32),
        np.zeros((3, 4), dtype=">f4"),
        np.zeros((4, 3), dtype=np.float32).T,
    ],
    ids=["transposed", "strided", "parameter", "NumPy", "big-endian", "NumPy transposed"],
)
def test_targets_of_any_layout(tmp_path: Path, target: Any) -> None:
    value = torch.arange(12.0).reshape(3, 4)
    saver(tmp_path).save(1, [value])
    assert restored(tmp_path, [target])[0] is target
    assert np.array_equal(np.asarray(target.detach() if torch.is_tensor(target) else target), value.numpy())


def test_tensors_that_into_lacks_are_created(tmp_path: Path) -> None:
    state = {"model": torch.ones(3), "optimizer": {"state": {0: {"momentum": torch.ones(3)}}}}
    saver(tmp_path).save(1, state)
    into = {"model": torch.zeros(3), "optimizer": {"state": {}}}
    assert same(restored(tmp_path, into), state)
    assert same(into["model"], state["model"])


def test_a_shared_tensor_fills_two_separate_ones(tmp_path: Path) -> None:
    weight = torch.arange(4.0)
    saver(tmp_path).save(1, {"embedding": weight, "head": weight})
    into = {"embedding": torch.zeros(4), "head": torch.zeros(4)}
    restored(tmp_path, into)
    assert same(into, {"embedding": weight, "head": weight})


@pytest.mark.parametrize(
    ("into", "message"),
    [
        (
            {"a": [torch.zeros(2, 3)]},
            r"state['a'][0] is float32 [3, 2] in the checkpoint, but float32 [2, 3]",
        ),
        ({"a": [torch.zeros(3, 2).half()]}, "state['a'][0] is float32 [3, 2] in the checkpoint, but float16"),
        ({"a": [torch.zeros(3, 2)] * 2}, "state['a'][1] is a tensor in into but not in the checkpoint"),
        ({"b": torch.zeros(3)}, "state['b'] is a tensor in into but not in the checkpoint"),
        ({"n": torch.zeros(3)}, "state['n'] is a tensor in into but not in the checkpoint"),
    ],
)
def test_a_mismatch_is_named_and_nothing_is_changed(tmp_path: Path, into: Any, message: str) -> None:
    saver(tmp_path).save(1, {"a": [torch.ones(3, 2)], "n": 1})
    with pytest.raises(CheckpointError) as caught:
        restored(tmp_path, into)
    assert message in caught.value.message
    tensors = [value for values in into.values() for value in (values if type(values) is list else [values])]
    assert not any(tensor.any() for tensor in tensors)


def test_two_tensors_do_not_fit_into_one(tmp_path: Path) -> None:
    saver(tmp_path).save(1, {"a": torch.ones(3), "b": torch.zeros(3)})
    one = torch.zeros(3)
    with pytest.raises(CheckpointError, match=r"\['b'\] is the same tensor as 'a' in into"):
        restored(tmp_path, {"a": one, "b": one})


def test_the_previous_checkpoint_is_used_if_the_latest_is_damaged(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path)
    for step in (1, 2):
        checkpointer.save(step, [torch.full((1000,), step)])
    (path,) = (tmp_path / "step-000000000002").rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    into = [torch.zeros(1000, dtype=torch.int64)]
    with pytest.warns(RuntimeWarning, match="checkpoint 2 in"):
        restored(tmp_path, into)
    assert same(into, [torch.full((1000,), 1)])
