"""Every collective and its gradient, in eager mode and in ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.tensorflow as hvd

RANKS = range(hvd.size()) if hvd.is_initialized() else range(1)
SUM = float(sum(rank + 1 for rank in RANKS))
"""The sum of ``rank + 1`` over all ranks."""


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


def both_ways(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``function``. In a graph, result and static type have to be the same."""
    eager = function(*arguments)
    graph = tf.function(function)(*arguments)
    tf.nest.map_structure(np.testing.assert_array_equal, eager, graph)
    assert [one.dtype for one in tf.nest.flatten(eager)] == [one.dtype for one in tf.nest.flatten(graph)]
    return tf.nest.map_structure(lambda one: one.numpy(), eager)


def own(*shape: int, dtype: Any = tf.float32) -> Any:
    """Return this rank's tensor, filled with rank + 1."""
    return tf.cast(tf.fill(shape, hvd.rank() + 1), dtype)


def check(result: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(result, np.float64), np.asarray(wanted, np.float64), rtol=1e-6)


def case_allreduce_of_all_types() -> None:
    for dtype in (tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64):
        total = both_ways(lambda one: hvd.allreduce(one, op=hvd.Sum), own(2, 3, dtype=dtype))
        assert total.dtype == dtype.as_numpy_dtype
        check(total, np.full((2, 3), SUM))


def case_operations_and_factors() -> None:
    size = hvd.size()
    check(both_ways(lambda one: hvd.allreduce(one), own(3)), np.full(3, SUM / size))
    check(both_ways(lambda one: hvd.allreduce(one, op=hvd.Min), own(3)), np.ones(3))
    check(both_ways(lambda one: hvd.allreduce(one, op=hvd.Max), own(3)), np.full(3, size))
    check(
        both_ways(lambda one: hvd.allreduce(one, op=hvd.Product), own(3)),
        np.full(3, np.prod(RANKS + np.array(1))),
    )
    scaled = both_ways(
        lambda one: hvd.allreduce(one, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), own(3)
    )
    check(scaled, np.full(3, 2 * SUM))
    check(hvd.allreduce(tf.Variable(own(2)), op=hvd.Sum), np.full(2, SUM))
    check(hvd.allreduce(own(), op=hvd.Sum), SUM)
    check(
        both_ways(lambda one: hvd.allreduce(one, op=hvd.Sum, device_dense="/cpu:0"), own(2)), np.full(2, SUM)
    )
    half = both_ways(lambda one: hvd.allreduce(one, op=hvd.Sum, compression=hvd.Compression.fp16), own(3))
    assert half.dtype == np.float32
    check(half, np.full(3, SUM))
    same = both_ways(lambda one: hvd.allreduce(one, op=hvd.Adasum), tf.constant([3.0, 4.0]))
    check(same, [3.0, 4.0])  # the Adasum of equal vectors is their average


def case_a_large_tensor_is_equal_on_all_ranks() -> None:
    rng = np.random.default_rng(hvd.rank())
    mean = hvd.allreduce(tf.constant(rng.normal(size=300_000), tf.float32))
    everyone = np.stack([np.random.default_rng(rank).normal(size=300_000) for rank in RANKS])
    np.testing.assert_allclose(mean, everyone.mean(0), rtol=1e-4, atol=1e-5)
    assert len({one.tobytes() for one in hvd.allgather_object(mean.numpy())}) == 1


def case_grouped_with_slices() -> None:
    slices = tf.IndexedSlices(own(1, 2), tf.constant([hvd.rank()]), tf.constant([hvd.size(), 2]))
    dense, sparse, integers = both_ways(
        lambda: [
            tf.convert_to_tensor(one)
            for one in hvd.grouped_allreduce([own(3), slices, own(2, dtype=tf.int32)], op=hvd.Sum)
        ]
    )
    check(dense, np.full(3, SUM))
    check(sparse, np.arange(1, hvd.size() + 1)[:, None] * np.ones(2))
    check(integers, np.full(2, SUM))
    averaged = hvd.allreduce(slices)
    assert isinstance(averaged, tf.IndexedSlices)
    check(tf.convert_to_tensor(averaged), np.arange(1, hvd.size() + 1)[:, None] * np.ones(2) / hvd.size())
    with raises(hvd.InvalidArgument, "support Average and Sum without factors only"):
        hvd.allreduce(slices, op=hvd.Max)


def case_slices_of_all_types() -> None:
    """As in Horovod's test_horovod_allreduce_indexed_slices_average_cpu: an average of integers is a fraction."""
    for dtype in (tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64):
        for op in (hvd.Sum, hvd.Average):
            values = own(2, 3, dtype=dtype) * 7 if dtype.is_unsigned else own(2, 3, dtype=dtype) * -7
            slices = tf.IndexedSlices(values, tf.constant([0, 2]), tf.constant([4, 3]))
            for run in (hvd.allreduce, tf.function(hvd.allreduce)):
                reduced = run(slices, op=op)
                size = hvd.size() if op == hvd.Average else 1
                kind = (values / values).dtype if op == hvd.Average else dtype
                assert reduced.values.dtype == kind, (
                    f"{op.name} of {dtype.name} is {reduced.values.dtype.name}"
                )
                check(reduced.values, hvd.allgather(values).numpy().astype(float) / size)
                check(reduced.indices, [0, 2] * hvd.size())
    ones = tf.IndexedSlices(
        tf.ones([2], tf.int32), tf.constant([hvd.rank(), hvd.rank() + 1]), tf.constant([hvd.size() + 1])
    )
    middle = [2 / hvd.size()] * (hvd.size() - 1)
    check(tf.convert_to_tensor(hvd.allreduce(ones)), [1 / hvd.size(), *middle, 1 / hvd.size()])


def case_allgather_of_different_rows() -> None:
    rows = own(hvd.rank() + 1, 2)
    everyone = both_ways(lambda: hvd.allgather(rows))
    check(everyone[:, 0], [rank + 1 for rank in RANKS for _ in range(rank + 1)])
    check(both_ways(lambda: hvd.allgather(own())), [rank + 1 for rank in RANKS])
    first, second = both_ways(lambda: hvd.grouped_allgather([own(1), own(2, dtype=tf.int64)]))
    assert (first.size, second.size) == (hvd.size(), 2 * hvd.size())


def case_broadcast_alltoall_reducescatter() -> None:
    size, rank, last = hvd.size(), hvd.rank(), hvd.size() - 1
    check(both_ways(lambda: hvd.broadcast(own(2), last)), [size, size])
    check(both_ways(lambda: hvd.alltoall(own(2 * size))), [other + 1 for other in RANKS for _ in range(2)])
    splits = [rank + 1] * size
    rows, counts = both_ways(lambda: hvd.alltoall(own(size * (rank + 1)), splits))
    check(rows, [other + 1 for other in RANKS for _ in range(other + 1)])
    assert counts.tolist() == [other + 1 for other in RANKS]
    part = both_ways(lambda: hvd.reducescatter(own(size + 1, 2), op=hvd.Sum))
    check(part, np.full((2 if rank == 0 else 1, 2), SUM))
    check(hvd.grouped_reducescatter([own(size)])[0], [SUM / size])


def case_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()

    def of(function: Callable[[Any], Any], given: Any, weights: Any) -> Any:
        def gradient() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(given)
                loss = tf.reduce_sum(function(given) * weights)
            return tape.gradient(loss, given)

        return both_ways(gradient)

    weight = float(rank + 1)
    check(of(lambda one: hvd.allreduce(one, op=hvd.Sum), own(2), weight), [SUM, SUM])
    check(of(lambda one: hvd.allreduce(one), own(2), weight), np.full(2, SUM / size))
    check(of(lambda one: hvd.allgather(one), own(rank + 1, 2), weight), np.full((rank + 1, 2), SUM / size))
    check(of(lambda one: hvd.allgather(one), own(), weight), SUM / size)
    check(of(lambda one: hvd.broadcast(one, 0), own(2), weight), np.full(2, SUM / size if rank == 0 else 0))
    check(of(lambda one: hvd.alltoall(one), own(size), weight), [other + 1 for other in RANKS])
    shares = [other + 1 for other in RANKS]
    check(of(lambda one: hvd.reducescatter(one), own(size), weight), shares)
    check(of(lambda one: hvd.reducescatter(one, op=hvd.Sum), own(size), weight), np.array(shares) * size)
    with raises(hvd.InvalidArgument, "op=Max has no gradient"):
        of(lambda one: hvd.allreduce(one, op=hvd.Max), own(2), weight)


def case_a_variable_that_is_read_in_a_graph() -> None:
    variable = tf.Variable(own(2))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(hvd.allreduce(variable, op=hvd.Sum))
        return tape.gradient(loss, variable)

    check(step(), np.full(2, hvd.size()))


def case_operations_keep_the_order_of_the_program() -> None:
    @tf.function
    def several(one: Any) -> Any:
        for _ in range(3):
            one = hvd.allreduce(one, op=hvd.Sum) + tf.reduce_sum(hvd.allgather(own(1))) * 0
        unused = [hvd.allreduce(tf.fill([n], 1.0), op=hvd.Sum) for n in range(1, 30)]
        return one, unused[-1]

    total, last = several(own(2))
    check(total, np.full(2, SUM * hvd.size() ** 2))
    check(last, np.full(29, hvd.size()))


def case_variables() -> None:
    kept = tf.Variable(own(3)), tf.Variable(own(2, dtype=tf.int64))
    hvd.broadcast_variables(kept, root_rank=hvd.size() - 1)
    check(kept[0], np.full(3, hvd.size()))
    check(kept[1], np.full(2, hvd.size()))
    kept[0].assign(own(3))
    tf.function(lambda: hvd.broadcast_variables(kept, 0))()
    check(kept[0], np.ones(3))
    if hvd.size() > 1:
        with raises(hvd.InvalidArgument, "variable 0", "[1] on rank 0", "[2] on rank 1"):
            hvd.broadcast_variables([tf.Variable(own(hvd.rank() + 1))], 0)
        with raises(hvd.InvalidArgument, "rank 0 has 1 variables, rank 1 has 2"):
            hvd.broadcast_variables([kept[0]] * (hvd.rank() + 1), 0)
    with raises(RuntimeError, "does not support eager execution"):
        hvd.broadcast_global_variables(0)


def case_a_graph_of_tensorflow_1() -> None:
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=np.full(2, hvd.rank() + 1.0))
        total = hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
        step = optimizer.minimize(tf.reduce_sum(variable) * (hvd.rank() + 1.0))
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            check(session.run(variable), [1, 1])
            check(session.run(total), np.array([1, 2]) * hvd.size())
            session.run(step)
            check(session.run(variable), np.full(2, 1 - SUM / hvd.size()))


def case_many_operations_of_a_graph_of_tensorflow_1_at_once() -> None:
    """The session runs them in any order, with its default number of threads."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sums = [hvd.allreduce(tf.fill([2], float(n)), op=hvd.Sum) for n in range(40)]
        check(session.run(sums), [[n * hvd.size()] * 2 for n in range(40)])


def case_objects_and_world_in_graphs() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(hvd.rank()) == list(RANKS)
    asked = tf.function(
        lambda: (
            hvd.rank_op(),
            hvd.size_op(),
            hvd.process_set_included_op(0),
            hvd.process_set_included_op(99),
        )
    )()
    assert [int(one) for one in asked] == [hvd.rank(), hvd.size(), 1, -2]
    hvd.barrier()
    assert hvd.gloo_enabled() and not hvd.mpi_enabled()


def case_a_process_set() -> None:
    if hvd.size() == 1:
        return
    alone = hvd.add_process_set([1])
    if hvd.rank() == 1:
        check(hvd.allreduce(own(2), op=hvd.Sum, process_set=alone), [2, 2])
    else:
        with raises(hvd.InvalidArgument, "rank 0 is not in process set [1]"):
            hvd.allreduce(own(2), process_set=alone)
    assert hvd.remove_process_set(alone)


def case_errors_name_what_and_who() -> None:
    with raises(hvd.InvalidArgument, "no GPU"):
        hvd.allreduce(own(2), device_dense="/gpu:0")
    with raises(hvd.InvalidArgument, "is not a reduction"):
        hvd.allreduce(own(2), op=77)
    if hvd.size() == 1:
        return
    for expected in (hvd.CollectiveError, tf.errors.FailedPreconditionError):
        with raises(expected, "mismatch", "shape", "rank"):
            hvd.allreduce(own(hvd.rank() + 1), name="mismatch")
    for expected in (hvd.InvalidArgument, tf.errors.InvalidArgumentError):
        with raises(expected, "splits"):
            hvd.alltoall(own(hvd.size() + 1))
    with raises(NotImplementedError, "IndexedSlices"):
        hvd.allreduce(tf.IndexedSlices(own(1), tf.constant([0])), op=hvd.Min)
    with raises(hvd.CollectiveError, "mismatch in a graph", "shape", "rank"):
        tf.function(lambda: hvd.allreduce(own(hvd.rank() + 1), name="mismatch in a graph"))()


def case_join() -> None:
    if hvd.rank() == hvd.size() - 1:
        check(hvd.allreduce(own(2), op=hvd.Sum), np.full(2, hvd.size()))
    assert int(hvd.join()) in RANKS
