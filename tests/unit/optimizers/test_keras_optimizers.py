"""LARS and LAMB for Keras against the papers' formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formulas import LAMB, LARS, RATES, SHAPES, after, gradients, lamb_step, lars_step, start
from keras_on_torch import Lazy, keras

optimizers = Lazy("cloudtrain.optimizers.keras")
LAMB_OPTIONS = {
    "beta_1": LAMB["beta1"],
    "beta_2": LAMB["beta2"],
    "epsilon": LAMB["eps"],
    "weight_decay": LAMB["weight_decay"],
}
CASES = [("LARS", LARS, lars_step, LARS), ("LAMB", LAMB_OPTIONS, lamb_step, LAMB)]
cases = pytest.mark.parametrize(("name", "options", "step", "plain"), CASES, ids=["lars", "lamb"])


def variables() -> dict[str, keras.Variable]:
    return {name: keras.Variable(value, dtype="float32", name=name) for name, value in start().items()}


def train(optimizer: keras.optimizers.Optimizer, trained: dict[str, keras.Variable]) -> None:
    for rate, given in zip(RATES, gradients(), strict=True):
        optimizer.learning_rate = rate
        grads = [keras.ops.convert_to_tensor(given[name], "float32") for name in trained]
        optimizer.apply(grads, list(trained.values()))


def check(found: dict[str, keras.Variable], wanted: dict[str, np.ndarray]) -> None:
    for name, variable in found.items():
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable), wanted[name], rtol=1e-4, atol=1e-5, err_msg=name
        )


@cases
def test_the_formula(name: str, options: Any, step: Any, plain: Any) -> None:
    trained = variables()
    train(getattr(optimizers, name)(learning_rate=1.0, **options), trained)
    check(trained, after(step, plain))


@cases
def test_without_decay(name: str, options: Any, step: Any, plain: Any) -> None:
    trained = variables()
    optimizer = getattr(optimizers, name)(learning_rate=1.0, **options)
    optimizer.exclude_from_weight_decay(var_names=list(SHAPES))
    train(optimizer, trained)
    check(trained, after(step, {**plain, "weight_decay": 0.0}))


@cases
def test_fit_and_a_saved_model(name: str, options: Any, step: Any, plain: Any, tmp_path: Path) -> None:
    make = getattr(optimizers, name)
    generator = np.random.default_rng(0)
    images = generator.normal(size=(64, 5)).astype("float32")
    labels = (images[:, 0] > 0).astype("int32")
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, decay_steps=100, decay_rate=0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make(learning_rate=schedule, **options), loss)
    losses = model.fit(images, labels, epochs=4, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is make
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    for trained in (model, loaded):
        trained.fit(images, labels, epochs=1, batch_size=16, shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_callbacks_find_what_holds_the_learning_rate() -> None:
    """A LearningRateScheduleCallback corrects ``momentums``, as of Keras's SGD."""
    trained = variables()
    optimizer = optimizers.LARS(learning_rate=0.25)
    given = next(gradients())
    optimizer.apply(
        [keras.ops.convert_to_tensor(given[name], "float32") for name in trained], [*trained.values()]
    )
    [of_bias] = [one for one, name in zip(optimizer.momentums, trained, strict=True) if name == "bias"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(of_bias), 0.25 * given["bias"], rtol=1e-6)
