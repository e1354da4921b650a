"""The state of a Keras training, through a real checkpoint and back, on the PyTorch backend."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_on_torch import Lazy, keras

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError

adapter = Lazy("cloudtrain.checkpoint.keras")
RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.random((48, 4), np.float32), RANDOM.random((48, 1), np.float32)
EPOCHS = 4


def make_model(width: int = 8, dtype: str = "float32") -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(width, dtype=dtype),
            layers.BatchNormalization(),
            layers.Dropout(0.3, seed=1),
            layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return model


def fit(model: Any, callback: Any, *more: Any, first: int = 0, epochs: int = EPOCHS) -> Any:
    callbacks = [callback, *more] if callback else [*more]
    return model.fit(
        INPUTS, TARGETS, batch_size=8, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0, callbacks=callbacks
    )  # fmt: skip


def values(model: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(variable.numpy()) for variable in [*model.variables, *model.optimizer.variables]]


def test_a_restored_training_continues_bit_for_bit(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    whole = make_model()
    start = [np.array(one.numpy()) for one in whole.variables]
    fit(whole, None)

    first = make_model()
    for variable, value in zip(first.variables, start, strict=True):
        variable.assign(value)
    fit(first, adapter.CheckpointCallback(Checkpointer(tmp_path)), epochs=2)

    second = make_model()
    callback = adapter.CheckpointCallback(Checkpointer(tmp_path))
    done = callback.restore(second)
    assert done == 2
    fit(second, callback, first=done)
    for expected, value in zip(values(whole), values(second), strict=True):
        assert np.array_equal(expected, value)
    checkpoint = Checkpointer(tmp_path).restore()
    assert checkpoint is not None
    assert (checkpoint.step, sorted(checkpoint.metrics)) == (EPOCHS * 6, ["loss", "mae"])


def test_saves_within_an_epoch_and_at_its_end(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path, keep=None)
    fit(make_model(), adapter.CheckpointCallback(checkpointer, every=3), epochs=2)
    checkpointer.wait()
    epochs = {step: Checkpointer(tmp_path).restore(step).state["epochs"] for step in checkpointer.steps()}  # type: ignore[union-attr]
    assert epochs == {3: 0, 6: 1, 9: 1, 12: 2}


def test_saves_when_the_checkpointer_is_due(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path, keep=None, every="auto", max_every=4)
    fit(make_model(), adapter.CheckpointCallback(checkpointer), epochs=2)
    checkpointer.wait()
    assert checkpointer.steps() == [4, 6, 8, 12]


def _train_until_notice(folder: Path, batch: int) -> None:
    def notify(ended: int, logs: Any) -> None:
        if ended == batch:
            os.kill(os.getpid(), signal.SIGTERM)

    notices = keras.callbacks.LambdaCallback(on_train_batch_end=notify)
    fit(make_model(), adapter.CheckpointCallback(Checkpointer(folder, asynchronous=False)), notices)


@pytest.mark.parametrize(
    ("batch", "step", "epochs"),
    [pytest.param(2, 3, 0, id="within", marks=pytest.mark.soak), pytest.param(5, 6, 1, id="last of epoch")],
)
def test_a_notice_saves_and_exits(tmp_path: Path, batch: int, step: int, epochs: int) -> None:
    # a separate process, as the notice affects all of it; not forked, as PyTorch has threads
    process = multiprocessing.get_context("spawn").Process(target=_train_until_notice, args=(tmp_path, batch))
    process.start()
    process.join(120)
    assert process.exitcode == 75
    model = make_model()
    callback = adapter.CheckpointCallback(Checkpointer(tmp_path))
    assert callback.restore(model) == epochs
    assert Checkpointer(tmp_path).steps() == [step]


def test_half_precision_and_other_variables(tmp_path: Path) -> None:
    model, extra = make_model(dtype="bfloat16"), keras.Variable(np.float32(3.5), name="extra")
    fit(model, None, epochs=1)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, adapter.capture(model, [extra]))
    state = Checkpointer(tmp_path).restore().state  # type: ignore[union-attr]
    other, fresh = make_model(dtype="bfloat16"), keras.Variable(np.float32(0), name="extra")
    adapter.apply(state, other, [fresh])
    assert float(fresh.numpy()) == 3.5
    for expected, value in zip(values(model), values(other), strict=True):
        assert np.array_equal(expected, value)


def test_a_mismatch_is_named_and_nothing_is_changed() -> None:
    state, wide = adapter.capture(make_model()), make_model(width=9)
    adapter.capture(wide)  # builds the optimizer
    before = values(wide)
    with pytest.raises(CheckpointError, match=r"kernel is float32 \[4, 8\], .*kernel is float32 \[4, 9\]"):
        adapter.apply(state, wide)
    with pytest.raises(CheckpointError, match=r"does not fit the variables: it has 0 variables, expected 1"):
        adapter.apply(state, make_model(), [keras.Variable(1.0)])
    assert all(np.array_equal(one, other) for one, other in zip(before, values(wide), strict=True))
