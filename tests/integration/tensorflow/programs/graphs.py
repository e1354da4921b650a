"""Graphs and compiled code: threads of sessions, classes of errors, XLA, and what Keras chooses where it sees a GPU."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from faked import a_gpu_for_keras, a_gpu_for_tensors

import cloudtrain.distributed.keras as hvd_keras
import cloudtrain.distributed.tensorflow as hvd

SIZE, RANK = hvd.size(), hvd.rank()
ONE_THREAD = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)


def case_a_session_with_fewer_threads_than_collectives() -> None:
    """Every rank would begin to wait for other collectives than the next, and none would end."""
    numbers = list(range(20)) if RANK % 2 else list(range(20))[::-1]
    with tf.Graph().as_default(), tf.compat.v1.Session(config=ONE_THREAD) as session:
        asked = {}
        for n in numbers:
            one = tf.fill([2], float(n))
            asked[f"sum {n}"] = hvd.allreduce(one, op=hvd.Sum, name=f"sum {n}")
            asked[f"rows {n}"] = hvd.allgather(one, name=f"rows {n}")
            asked[f"in a function {n}"] = tf.function(hvd.broadcast)(one, 0, name=f"in a function {n}")
        for _ in range(2):
            results = session.run(asked)
            for n in numbers:
                np.testing.assert_array_equal(results[f"sum {n}"], [n * SIZE] * 2)
                np.testing.assert_array_equal(results[f"rows {n}"], [n] * 2 * SIZE)
                np.testing.assert_array_equal(results[f"in a function {n}"], [n] * 2)


def case_collectives_of_a_session_share_a_function() -> None:
    """A session handles all functions of its graph again at each new operation."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        for n in range(3):
            assert session.run(hvd.broadcast(tf.fill([2], n), 0)).tolist() == [n, n]
        assert len(graph.as_graph_def().library.function) == 1


def case_a_gradient_and_a_join_in_a_session() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session(config=ONE_THREAD) as session:
        variable = tf.compat.v1.placeholder(tf.float32, [2])
        [gradient] = tf.gradients(hvd.allreduce(variable, op=hvd.Sum) * (RANK + 1.0), [variable])
        total = sum(rank + 1 for rank in range(SIZE))
        np.testing.assert_array_equal(session.run(gradient, {variable: [1, 2]}), [total] * 2)
        assert session.run(hvd.join()) in range(SIZE)


def mismatch(name: str) -> Any:
    """The ranks disagree on this; with one rank, the splits do not fit the rows."""
    if SIZE == 1:
        return hvd.alltoall(tf.ones(3), [1], name=name)
    return hvd.allreduce(tf.ones(RANK + 1), name=name)


def raised_by(function: Callable[[], Any]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("no error")


def case_errors_have_one_class() -> None:
    eager = raised_by(lambda: mismatch("an error"))
    of_horovod = hvd.HorovodInternalError if SIZE > 1 else hvd.InvalidArgument
    of_tensorflow = tf.errors.FailedPreconditionError if SIZE > 1 else tf.errors.InvalidArgumentError

    @tf.function
    def converted_by_autograph(one: Any) -> Any:
        if tf.reduce_sum(one) > 0:
            one += 1
        return mismatch("an error")

    def in_a_session(make: Callable[..., Any]) -> None:
        with tf.Graph().as_default():
            result = mismatch("an error")
            with make() as session:
                session.run(result)

    for run in (
        tf.function(lambda: mismatch("an error")),
        lambda: converted_by_autograph(tf.ones(2)),
        lambda: in_a_session(tf.compat.v1.Session),
        lambda: in_a_session(tf.compat.v1.train.MonitoredSession),
    ):
        error = raised_by(run)
        for one in (eager, error, pickle.loads(pickle.dumps(error))):
            assert isinstance(one, of_horovod) and isinstance(one, of_tensorflow), type(one).__mro__
            assert type(one).__name__ == of_horovod.__name__
            assert str(one) == str(eager)


def case_errors_while_a_graph_is_made_have_their_class() -> None:
    @tf.function
    def converted_by_autograph(one: Any, op: Any) -> Any:
        if tf.reduce_sum(one) > 0:
            one += 1
        return hvd.allreduce(one, op=op)

    error = raised_by(lambda: converted_by_autograph(tf.ones(2), 99))
    assert isinstance(error, hvd.InvalidArgument) and isinstance(error, tf.errors.InvalidArgumentError)
    assert str(error) == str(raised_by(lambda: hvd.allreduce(tf.ones(2), op=99)))


def case_errors_of_others_stay_what_they_are() -> None:
    def fails(error: type[Exception]) -> Any:
        def function() -> Any:
            raise error("another")

        return tf.function(lambda: tf.numpy_function(function, [], tf.float32))

    assert type(raised_by(fails(RuntimeError))) is tf.errors.UnknownError
    assert type(raised_by(fails(ValueError))) is tf.errors.InvalidArgumentError
    # TensorFlow makes this one with keywords.
    unequal = raised_by(lambda: tf.debugging.assert_equal(1, 2, message="the batches"))
    assert type(unequal) is tf.errors.InvalidArgumentError and "the batches" in str(unequal)


class ErrorOfAScript(tf.errors.InvalidArgumentError):  # type: ignore[misc]
    def __init__(self, text: str, *, column: str) -> None:
        super().__init__(None, None, text)
        self.column = column


def case_classes_derived_from_tensorflows_take_their_own_arguments() -> None:
    assert ErrorOfAScript("no such column", column="age").column == "age"


def case_code_for_xla_is_refused() -> None:
    compiled = tf.function(hvd.allreduce, jit_compile=True)
    inside = tf.function(lambda: tf.function(hvd.allreduce)(tf.ones(2)), jit_compile=True)
    for run in (lambda: compiled(tf.ones(2)), inside):
        error = raised_by(run)
        assert isinstance(error, hvd.InvalidArgument), error
        assert "jit_compile" in str(error)


class CompiledLayer(keras.layers.Layer):  # type: ignore[misc]
    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def call(self, given: Any) -> Any:
        return tf.tanh(given) * 2


def compiled(*, embedding: bool = False, layer: Any = None, device_dense: str = "", **options: Any) -> Any:
    keras.utils.set_random_seed(1)
    first = [keras.layers.Embedding(10, 3), keras.layers.Flatten()] if embedding else []
    last = [keras.layers.Dense(1), *([layer] if layer else [])]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *first, *last])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01), device_dense=device_dense)
    model.compile(optimizer, "mse", **options)
    return model


def fit(model: Any) -> list[Any]:
    rows = np.random.default_rng(2).integers(0, 9, size=(4 * SIZE, 4))
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(rows[RANK::SIZE], np.ones((4, 1), "f"), batch_size=2, verbose=0, callbacks=callbacks)
    return list(model.get_weights())


def case_keras_trains_with_its_defaults_where_there_is_a_gpu() -> None:
    wanted = fit(compiled())
    with a_gpu_for_keras():
        model = compiled()
        assert model.jit_compile is (SIZE == 1)  # one rank may use XLA: nothing waits
        for trained, expected in zip(fit(model), wanted, strict=True):
            np.testing.assert_allclose(trained, expected, rtol=1e-5)
        fit(compiled(layer=CompiledLayer()))
        explicit = compiled(jit_compile=True)
        assert explicit.jit_compile
        if SIZE > 1:
            error = raised_by(lambda: fit(explicit))
            assert isinstance(error, hvd.InvalidArgument) and "jit_compile" in str(error), error
        with tempfile.TemporaryDirectory() as folder:
            explicit.save(Path(folder, "a.keras"))
            loaded = hvd_keras.load_model(Path(folder, "a.keras"))
        assert loaded.jit_compile is (SIZE == 1)
        fit(loaded)
        with mock.patch.object(keras.backend, "backend", lambda: "jax"):
            loaded.compile("sgd", "mse")
        assert loaded.jit_compile  # other backends keep their default


def case_embeddings_train_where_there_is_a_gpu() -> None:
    wanted = fit(compiled(embedding=True))
    with a_gpu_for_tensors(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model = compiled(embedding=True, device_dense="/cpu:0")
            for trained, expected in zip(fit(model), wanted, strict=True):
                np.testing.assert_allclose(trained, expected, rtol=1e-5)
        said = [str(one.message) for one in caught if "IndexedSlices" in str(one.message)]
        assert len(said) == (SIZE > 1 and RANK == 0), said
        if SIZE > 1:
            error = raised_by(lambda: tf.function(hvd.alltoall)(tf.ones(SIZE)))
            assert isinstance(error, hvd.InvalidArgument) and "host memory" in str(error)
