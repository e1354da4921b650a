"""Optimizers, tapes, callbacks and saved models: on Keras 3, and on tf_keras with ``TF_USE_LEGACY_KERAS=1``.

Every training on all ranks is compared with one process that trains on the batches of all ranks.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.tensorflow.keras as hvd
from cloudtrain.distributed.tensorflow import DistributedGradientTape, PartialDistributedGradientTape

keras = tf.keras
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
SIZE = hvd.size() if hvd.is_initialized() else 1
BATCH, BATCHES = 8, 3


def data() -> tuple[Any, Any]:
    """Return the data of all ranks. Rank r has the rows ``[r::SIZE]``."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(BATCH * BATCHES * SIZE, 5)).astype(np.float32)
    return x, (x @ rng.normal(size=(5, 2))).astype(np.float32)


def mine(whole: Any) -> Any:
    return whole[hvd.rank() :: SIZE]


def dense_model(seed: int = 3) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((5,)), *layers])


def sgd(**options: Any) -> Any:
    return keras.optimizers.SGD(**{"learning_rate": 0.1, "momentum": 0.9, **options})


def close(one: Any, other: Any, tolerance: float = 2e-5) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def equal_on_all_ranks(arrays: Any) -> None:
    """Check equality bit for bit."""
    assert (
        len({b"".join(one.tobytes() for one in of_rank) for of_rank in hvd.allgather_object(list(arrays))})
        == 1
    )


@functools.cache  # compiling a model takes longer than training it
def alone(make: Callable[[], Any] = sgd, steps: int = 2 * BATCHES, **options: Any) -> list[Any]:
    """Return the weights after training one process on the joined batches."""
    x, y = data()
    model = dense_model()
    model.compile(make(**options), "mse")
    model.fit(x, y, batch_size=BATCH * SIZE, epochs=steps // BATCHES, shuffle=False, verbose=0)
    return list(model.get_weights())


def case_fit_equals_one_process_with_the_joined_batches() -> None:
    for make in (sgd, keras.optimizers.Adam):
        x, y = data()
        model = dense_model()
        model.compile(hvd.DistributedOptimizer(make(learning_rate=0.05)), "mse", metrics=["mae"])
        history = model.fit(mine(x), mine(y), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        equal_on_all_ranks(model.get_weights())
        close(model.get_weights(), alone(make, learning_rate=0.05))
        assert history.history["loss"][1] < history.history["loss"][0]


def case_a_timeline_has_the_steps() -> None:
    x, y = data()
    model = dense_model()
    model.compile(hvd.DistributedOptimizer(sgd()), "mse")
    with tempfile.TemporaryDirectory() as folder:
        hvd.start_timeline(f"{folder}/trace.json")
        model.fit(mine(x), mine(y), batch_size=BATCH, verbose=0)
        hvd.stop_timeline()
        [own] = Path(folder).iterdir()
        steps = own.read_text().count('"STEP"')
    assert steps == (BATCHES - 1 if SIZE > 1 else 0), "the end of the first step starts the timeline"


def case_without_it_ranks_drift_apart() -> None:
    x, y = data()
    model = dense_model()
    model.compile(sgd(), "mse")
    model.fit(mine(x), mine(y), batch_size=BATCH, shuffle=False, verbose=0)
    assert len({weight.tobytes() for weight in hvd.allgather_object(model.get_weights()[0])}) == SIZE


def case_ranks_that_start_apart_are_equal_after_fit() -> None:
    x, y = data()
    model = dense_model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(sgd(learning_rate=0.1 / (1 + hvd.rank()))), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1)
    model.fit(mine(x), mine(y), batch_size=BATCH, epochs=2, verbose=0, callbacks=[callback])
    equal_on_all_ranks(model.get_weights())
    equal_on_all_ranks([np.asarray(one) for one in model.optimizer.variables])
    equal_on_all_ranks([np.asarray(tf.convert_to_tensor(model.optimizer.learning_rate))])


def case_custom_training_loops() -> None:
    wanted = alone()
    for graph in (False, True):
        model, optimizer = dense_model(), hvd.DistributedOptimizer(sgd())
        close(loop(model, optimizer, graph), wanted)
        model = dense_model()
        close(loop(model, sgd(), graph, wrap=DistributedGradientTape), wanted)
        equal_on_all_ranks(model.get_weights())


def loop(
    model: Any, optimizer: Any, graph: bool, wrap: Callable[[Any], Any] = lambda tape: tape
) -> list[Any]:
    x, y = (mine(whole) for whole in data())

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    run = tf.function(step) if graph else step
    for _ in range(2):
        for start in range(0, len(x), BATCH):
            run(tf.constant(x[start : start + BATCH]), tf.constant(y[start : start + BATCH]))
    return list(model.get_weights())


def case_options_of_the_optimizer() -> None:
    wanted = alone()
    for options in (
        {"gradient_predivide_factor": 4.0},
        {"groups": 2},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Sum},
    ):
        summed = options.get("op") == hvd.Sum
        optimizer = hvd.DistributedOptimizer(sgd(learning_rate=0.1 / SIZE if summed else 0.1), **options)
        tolerance = 3e-3 if "compression" in options else 2e-5
        close(loop(dense_model(), optimizer, graph=True), wanted, tolerance)


def case_a_copy_by_its_config() -> None:
    for options in ({}, {"backward_passes_per_step": 1, "gradient_predivide_factor": 2.0}):
        optimizer = hvd.DistributedOptimizer(sgd(), **options)
        copy = type(optimizer).from_config(optimizer.get_config())
        assert copy.get_config() == optimizer.get_config()
        close(loop(dense_model(), copy, graph=True), alone())


def case_clipping_sees_the_averaged_gradient() -> None:
    wanted = alone(global_clipnorm=0.05)
    close(loop(dense_model(), hvd.DistributedOptimizer(sgd(global_clipnorm=0.05)), graph=True), wanted)


def case_backward_passes_per_step() -> None:
    """Three steps with a third of the data each equal one step with all data."""
    x, y = data()
    single = dense_model()
    single.compile(sgd(), "mse")
    for _ in range(2):
        single.train_on_batch(x, y)
    for average in (True, False):
        rate = 0.1 if average else 0.1 / BATCHES
        options = {"backward_passes_per_step": BATCHES, "average_aggregated_gradients": average}
        for graph in (False, True):
            optimizer = hvd.DistributedOptimizer(sgd(learning_rate=rate), **options)
            close(loop(dense_model(), optimizer, graph), single.get_weights())
            assert int(optimizer.iterations) == 2 * BATCHES
        model = dense_model()
        model.compile(hvd.DistributedOptimizer(sgd(learning_rate=rate), **options), "mse")
        model.fit(mine(x), mine(y), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        close(model.get_weights(), single.get_weights())


def case_slices_of_an_embedding() -> None:
    """With SGD, which sums the slices of a row. Adam in Keras 3 applies each slice separately."""
    words = np.random.default_rng(5).integers(0, 50, size=(BATCH * SIZE, 6))
    target = np.ones((BATCH * SIZE, 6, 3), np.float32)

    def train(optimizer: Any, x: Any, y: Any) -> list[Any]:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Embedding(50, 3)])
        model.compile(optimizer, "mse")
        for _ in range(4):
            model.train_on_batch(x, y)
        return list(model.get_weights())

    wanted = train(sgd(), words, target)
    for options in ({}, {"sparse_as_dense": True}, {"backward_passes_per_step": 2}):
        optimizer = hvd.DistributedOptimizer(sgd(), **options)
        trained = train(optimizer, mine(words), mine(target))
        equal_on_all_ranks(trained)
        if "backward_passes_per_step" not in options:
            close(trained, wanted)


def case_layers_excluded_from_the_reduction() -> None:
    model, optimizer = dense_model(), None
    optimizer = hvd.PartialDistributedOptimizer(sgd(), local_layers=model.layers[-1])
    kernel, bias, *own = loop(model, optimizer, graph=True)
    equal_on_all_ranks([kernel, bias])
    assert len({one.tobytes() for one in hvd.allgather_object(own[0])}) == SIZE
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones((1, 5)))) * (hvd.rank() + 1.0)
    partial = PartialDistributedGradientTape(tape, local_layers=[model.layers[-1]])
    local, everyone = partial.get_local_and_global_gradients(loss, model.trainable_variables)
    assert [
        variable is source
        for (source, _), variable in zip(local, model.layers[-1].trainable_variables, strict=True)
    ] == [1, 1]
    np.testing.assert_allclose(local[1][1], np.full(2, (hvd.rank() + 1) / SIZE))
    equal_on_all_ranks([gradient.numpy() for _, gradient in everyone])


def case_mixed_precision_skips_the_same_steps_on_all_ranks() -> None:
    scaling: Any = keras.mixed_precision.LossScaleOptimizer
    inside = hvd.DistributedOptimizer(scaling(sgd()))
    # As compile makes it for a model of mixed_float16. In tf_keras, fit alone sees averages (below).
    around = [] if LEGACY else [scaling(hvd.DistributedOptimizer(sgd()))]
    for optimizer in (inside, *around):
        variable = weight([1.0])
        infinite = tf.constant([np.inf if hvd.rank() == 0 else 1.0])
        optimizer.apply_gradients([(infinite, variable)])
        assert variable.numpy().tolist() == [1.0]
        optimizer.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
        assert variable.numpy()[0] != 1.0
        equal_on_all_ranks([variable.numpy()])


def weight(values: Any) -> Any:
    return tf.Variable(values) if LEGACY else keras.Variable(values)


def case_gradients_of_different_variables_are_not_added() -> None:
    one, other = tf.Variable([1.0]), tf.Variable([1.0])
    with tf.GradientTape() as tape:
        loss = one * 2.0 if hvd.rank() == 0 else other * 3.0
    try:
        DistributedGradientTape(tape).gradient(loss, [one, other])
    except hvd.CollectiveError as error:
        assert "without a gradient (by number): rank 0: [1], rank 1: [0]" in str(error)
    else:
        assert SIZE == 1


def case_different_weights_are_warned_of() -> None:
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("cloudtrain.distributed").addHandler(handler)
    for apart in (0.0, 1.0):
        same, own = weight([3.0]), weight([apart * hvd.rank()])
        optimizer = hvd.DistributedOptimizer(sgd())
        for _ in range(3):
            optimizer.apply_gradients([(tf.ones(1), same), (tf.ones(1), own)])
    logging.getLogger("cloudtrain.distributed").removeHandler(handler)
    assert ["the ranks' weights differ" in text for text in texts] == [True] * (
        SIZE > 1 and hvd.rank() == 0
    ), texts


def case_metrics_are_averaged_for_later_callbacks() -> None:
    seen: list[dict[str, Any]] = []
    after = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    x, y = data()
    model = dense_model()
    model.compile(hvd.DistributedOptimizer(sgd()), "mse", metrics=["mae"])
    own: list[dict[str, Any]] = []
    before = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.append(dict(logs)))
    history = model.fit(
        *(mine(x), mine(y)),
        validation_data=(mine(x), mine(y)),
        epochs=2,
        verbose=0,
        callbacks=[before, hvd.callbacks.MetricAverageCallback(), after],
    ).history
    everyone = hvd.allgather_object(own)
    for epoch, logs in enumerate(seen):
        assert set(logs) == {"loss", "mae", "val_loss", "val_mae"}
        for name, value in logs.items():
            np.testing.assert_allclose(
                value, np.mean([of_rank[epoch][name] for of_rank in everyone]), rtol=1e-6
            )
            assert history[name][epoch] == value
    assert len({json.dumps(one) for one in hvd.allgather_object(seen)}) == 1
    try:
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, {"loss": 1.0, f"of rank {hvd.rank()}": 2.0})
    except hvd.CollectiveError as error:
        assert "disagree on metrics: rank 0: ['loss', 'of rank 0'], rank 1: ['loss', 'of rank 1']" in str(
            error
        )
    else:
        assert SIZE == 1


def rates(callbacks: list[Any], epochs: int, optimizer: Any = None, steps: int = 4) -> list[list[float]]:
    """Return the learning rate at each batch of each epoch."""
    found: list[list[float]] = [[] for _ in range(epochs)]

    class Look(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            found[self.epoch].append(float(tf.convert_to_tensor(self.model.optimizer.learning_rate)))

    model = dense_model()
    model.compile(hvd.DistributedOptimizer(optimizer or sgd(momentum=0.0)), "mse")
    x, y = (whole[: 2 * steps] for whole in data())
    logs = model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=[*callbacks, Look()]).history
    np.testing.assert_allclose(logs["lr"], [of_epoch[-1] for of_epoch in found], rtol=1e-6)
    return found


def case_warm_up() -> None:
    lr = 0.1 * SIZE
    found = rates([hvd.callbacks.LearningRateWarmupCallback(lr, warmup_epochs=2)], epochs=3)
    steps = np.arange(1, 9) / 4  # epochs done, including this batch
    np.testing.assert_allclose(np.ravel(found[:2]), lr / SIZE * (steps * (SIZE - 1) / 2 + 1), rtol=1e-5)
    np.testing.assert_allclose(found[2], [lr] * 4, rtol=1e-5)


def case_schedules() -> None:
    schedule = hvd.callbacks.LearningRateScheduleCallback
    found = rates(
        [
            schedule(0.5, multiplier=0.1, start_epoch=1, end_epoch=3),
            schedule(0.5, multiplier=lambda epoch: 1 + epoch, start_epoch=3, staircase=False),
        ],
        epochs=4,
    )
    np.testing.assert_allclose([of_epoch[0] for of_epoch in found[:3]], [0.1, 0.5, 0.05], rtol=1e-5)
    np.testing.assert_allclose(found[3], [0.5 * (4 + batch / 4) for batch in range(4)], rtol=1e-5)
    assert all(len(set(of_epoch)) == 1 for of_epoch in found[:3])


def case_rates_of_scripts_that_leave_out_initial_lr() -> None:
    """As for Horovod before 0.20: both callbacks start from the learning rate of the optimizer."""
    lr = 0.1 * SIZE
    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=2, verbose=0),
        hvd.callbacks.LearningRateScheduleCallback(start_epoch=2, end_epoch=3, multiplier=1.0),
        hvd.callbacks.LearningRateScheduleCallback(start_epoch=3, multiplier=lambda epoch: 1e-1),
    ]
    found = rates(callbacks, 4, sgd(learning_rate=lr, momentum=0.0))
    steps = np.arange(1, 9) / 4
    np.testing.assert_allclose(np.ravel(found[:2]), lr / SIZE * (steps * (SIZE - 1) / 2 + 1), rtol=1e-5)
    np.testing.assert_allclose(found[2:], [[lr] * 4, [lr / 10] * 4], rtol=1e-5)


def case_momentum_is_corrected() -> None:
    """The velocity contains the learning rates of earlier steps. With gradient 1 and momentum m, the paper gives
    v' = m * new / old * v - new."""
    for correct in (True, False):
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            0.1, multiplier=lambda epoch: 0.5**epoch, momentum_correction=correct
        )
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(hvd.DistributedOptimizer(sgd(momentum=0.5)), lambda y, prediction: prediction)
        start = model.get_weights()[0].item()
        model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=3, verbose=0, callbacks=[schedule])
        velocity, weight = 0.0, start
        for old, new in ((0.1, 0.1), (0.1, 0.05), (0.05, 0.025)):
            velocity = 0.5 * velocity * (new / old if correct else 1) - new
            weight += velocity
        np.testing.assert_allclose(model.get_weights()[0].item(), weight, rtol=1e-5)


def case_an_optimizer_with_a_schedule_is_refused() -> None:
    own = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    try:
        rates([hvd.callbacks.LearningRateWarmupCallback(0.1)], 1, sgd(learning_rate=own))
    except hvd.InvalidArgument as error:
        assert "already has a learning rate schedule" in str(error)
    else:
        raise AssertionError("it was accepted")


def case_the_best_model_is_written_on_rank_0_and_loads_without_cloudtrain() -> None:
    folder = hvd.broadcast_object(tempfile.mkdtemp())
    path = f"{folder}/best-{hvd.rank()}.keras"
    x, y = data()
    model = dense_model()
    model.compile(hvd.DistributedOptimizer(sgd()), "mse")
    callbacks = [
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=path),
    ]
    model.fit(mine(x), mine(y), batch_size=BATCH, epochs=3, verbose=0, callbacks=callbacks)
    hvd.barrier()
    assert sorted(os.listdir(folder)) == ["best-0.keras"]
    plain = keras.models.load_model(f"{folder}/best-0.keras")
    assert type(plain.optimizer) is keras.optimizers.SGD
    close(plain.get_weights(), model.get_weights(), 0)
    again = hvd.load_model(f"{folder}/best-0.keras", compression=hvd.Compression.none)
    assert int(again.optimizer.iterations) == 3 * BATCHES
    close(
        [np.asarray(one) for one in again.optimizer.variables],
        [np.asarray(one) for one in model.optimizer.variables],
    )
    again.fit(mine(x), mine(y), batch_size=BATCH, verbose=0)
    equal_on_all_ranks(again.get_weights())


def case_what_cannot_be_wrapped() -> None:
    for make, word in (
        (lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "already"),
        (lambda: hvd.DistributedOptimizer("sgd"), "not a Keras optimizer"),
        (lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Adasum), "Average and Sum"),
        (lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0), "predivide"),
        (lambda: hvd.DistributedOptimizer(sgd(), backward_passes_per_step=0), "must be > 0"),
        (lambda: hvd.callbacks.LearningRateWarmupCallback(None), "initial_lr"),
        (lambda: hvd.callbacks.LearningRateScheduleCallback(0.1), "multiplier"),
    ):
        try:
            make()
        except ValueError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{word}: it was accepted")


def case_an_elastic_state() -> None:
    model = dense_model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(sgd()), "mse")
    x, y = data()
    if hvd.rank() == 0:  # the others lack velocities
        model.optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    state.sync()
    equal_on_all_ranks(model.get_weights())
    assert (state.batch, state.epoch) == (20, 10)
    before = model.get_weights()
    model.fit(
        mine(x), mine(y), batch_size=BATCH, verbose=0, callbacks=[keras_elastic("UpdateEpochState", state)]
    )
    assert state.epoch == 11
    after = model.get_weights()
    state.restore()
    close(model.get_weights(), before, 0)
    model.set_weights(after)
    state.commit()
    model.set_weights(before)
    state.restore()
    close(model.get_weights(), after, 0)


def keras_elastic(name: str, *arguments: Any) -> Any:
    return getattr(hvd.elastic, f"{name}Callback")(*arguments)


def case_training_resumes_from_its_last_commit() -> None:
    variable = tf.Variable(1.0)
    fails = [SIZE > 1]

    @tf.function
    def mismatch() -> Any:
        return hvd.allreduce(tf.ones([hvd.rank() + 1]), name="of two shapes")

    @hvd.elastic.run
    def train(state: Any) -> str:
        variable.assign_add(1.0)
        if fails.pop() if fails else False:
            mismatch()
        return f"{variable.numpy()} after {state.commits} commits"

    from cloudtrain.distributed.tensorflow.elastic import TensorFlowState

    assert train(TensorFlowState([variable], commits=0)) == "2.0 after 0 commits"


def case_batch_normalization_over_all_ranks() -> None:
    from cloudtrain.distributed.tensorflow import SyncBatchNormalization

    x, _ = data()
    layer, whole = SyncBatchNormalization(), keras.layers.BatchNormalization()
    np.testing.assert_allclose(
        layer(mine(x), training=True), mine(whole(x, training=True).numpy()), atol=1e-5
    )
    np.testing.assert_allclose(layer.moving_variance, whole.moving_variance, rtol=1e-3)


def case_values() -> None:
    assert float(hvd.allreduce(hvd.rank() + 1.0)) == (SIZE + 1) / 2
    assert float(hvd.allreduce(1.0, average=False)) == SIZE
    assert hvd.allgather([hvd.rank()]).numpy().tolist() == list(range(SIZE))
    assert hvd.broadcast([hvd.rank()], 0).numpy().tolist() == [0]
    assert hvd.reducescatter([1.0] * SIZE, op=hvd.Sum).numpy().tolist() == [SIZE]


if LEGACY:

    def case_gradients_that_the_optimizer_computes() -> None:
        """They are averages, also for what changes them before they are applied, and are not reduced twice."""
        for family in (keras.optimizers, keras.optimizers.legacy):
            for name in ("_compute_gradients", "compute_gradients"):
                for op in (hvd.Average, hvd.Sum):
                    variable = tf.Variable([1.0])
                    optimizer = hvd.DistributedOptimizer(family.SGD(1.0), op=op)
                    size = SIZE if op == hvd.Average else 1
                    wanted = SIZE * (SIZE + 1) / 2 / size
                    with tf.GradientTape() as tape:
                        loss = variable[0] * (hvd.rank() + 1.0)
                    pairs = getattr(optimizer, name)(loss, [variable], tape=tape)
                    np.testing.assert_allclose(pairs[0][0], [wanted])
                    optimizer.apply_gradients(pairs)
                    np.testing.assert_allclose(variable, [1 - wanted])
                    optimizer.minimize(lambda: variable[0] * (hvd.rank() + 1.0), [variable])  # noqa: B023
                    np.testing.assert_allclose(variable, [1 - 2 * wanted])

    def case_a_sum_of_scaled_gradients_is_not_summed_again() -> None:
        variable = tf.Variable([1.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
        scaled = keras.mixed_precision.LossScaleOptimizer(optimizer)
        scaled.minimize(lambda: variable[0] * (hvd.rank() + 1.0), [variable])
        np.testing.assert_allclose(variable, [1 - SIZE * (SIZE + 1) / 2])

    def case_gradients_of_several_passes_that_the_optimizer_computes() -> None:
        """As in Horovod's test_gradient_aggregation."""
        for family in (keras.optimizers, keras.optimizers.legacy):
            variable = tf.Variable([1.0])
            optimizer = hvd.DistributedOptimizer(family.SGD(1.0), backward_passes_per_step=2)
            step = tf.function(
                lambda: optimizer.apply_gradients(  # noqa: B023
                    optimizer._compute_gradients(lambda: variable[0] * (hvd.rank() + 1.0), [variable]),  # noqa: B023
                    experimental_aggregate_gradients=False,
                )
            )
            for passed in range(1, 5):
                step()
                np.testing.assert_allclose(variable, [1 - passed // 2 * (SIZE + 1)])
                assert int(optimizer.iterations) == passed

    def case_a_legacy_optimizer() -> None:
        legacy = keras.optimizers.legacy
        wanted = alone(legacy.SGD, learning_rate=0.1, momentum=0.9, clipnorm=0.5)
        optimizer = hvd.DistributedOptimizer(legacy.SGD(0.1, momentum=0.9, clipnorm=0.5))
        close(loop(dense_model(), optimizer, graph=True), wanted)
        found = rates([hvd.callbacks.LearningRateWarmupCallback(0.1, 2)], 2, legacy.SGD(0.1, momentum=0.9))
        np.testing.assert_allclose(found[1][-1], 0.1, rtol=1e-5)
