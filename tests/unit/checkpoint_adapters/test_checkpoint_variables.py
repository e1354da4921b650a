"""Keras variables, on the PyTorch backend, and complex numbers in a state."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_on_torch import keras

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError


@pytest.fixture
def checkpointer(tmp_path: Path) -> Checkpointer:
    return Checkpointer(tmp_path, asynchronous=False)


def variable(array: np.ndarray[Any, Any]) -> Any:
    return keras.Variable(array, dtype=array.dtype.name, trainable=array.dtype.kind == "f")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
def test_a_variable_is_saved_as_an_array_and_filled(checkpointer: Checkpointer, dtype: str) -> None:
    value = np.arange(6).reshape(2, 3).astype(dtype)
    checkpointer.save(1, {"w": variable(value), "scalar": variable(np.asarray(7, dtype))})
    checkpoint = checkpointer.restore()
    assert checkpoint is not None
    assert checkpoint.state["w"].dtype == dtype
    np.testing.assert_array_equal(checkpoint.state["w"], value)
    into = {
        "w": variable(np.zeros((2, 3), dtype)),
        "scalar": variable(np.asarray(0, dtype)),
    }
    filled = checkpointer.restore(into=into)
    assert filled is not None
    assert filled.state["w"] is into["w"]
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(into["w"]), value)
    assert keras.ops.convert_to_numpy(into["scalar"]) == np.asarray(7, dtype)


def test_one_variable_in_two_places_is_stored_once(checkpointer: Checkpointer, tmp_path: Path) -> None:
    variable = keras.Variable(np.ones(100_000, np.float32))
    checkpointer.save(1, {"encoder": variable, "decoder": variable})
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors")) < 500_000


def test_bfloat16_is_saved_as_float32(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"w": keras.Variable(np.array([1.5, -2.0]), dtype="bfloat16")})
    into = {"w": keras.Variable(np.zeros(2, np.float32))}
    checkpointer.restore(into=into)
    assert keras.ops.convert_to_numpy(into["w"]).tolist() == [1.5, -2.0]


def test_a_variable_that_does_not_fit(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"w": keras.Variable(np.zeros(2, np.float32))})
    with pytest.raises(CheckpointError, match=r"state\['w'\] is float32 \[2\] in the checkpoint"):
        checkpointer.restore(into={"w": keras.Variable(np.zeros(3, np.float32))})


def test_the_manifest_names_the_versions(checkpointer: Checkpointer, tmp_path: Path) -> None:
    checkpointer.save(1, {"w": keras.Variable(np.zeros(2, np.float32))})
    manifest = next(tmp_path.rglob("manifest.json")).read_text()
    assert f'"keras": "{version("keras")}"' in manifest


def test_complex_numbers(checkpointer: Checkpointer) -> None:
    numbers = [1 - 2j, complex("inf"), complex(0.0, -0.0)]
    checkpointer.save(1, {"roots": numbers, "array": np.array([1 + 2j], np.complex64)})
    checkpoint = checkpointer.restore()
    assert checkpoint is not None
    assert repr(checkpoint.state["roots"]) == repr(numbers)
    assert checkpoint.state["array"].tolist() == [1 + 2j]
