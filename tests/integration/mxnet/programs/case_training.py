"""Training on all ranks equals training one process on the joined batch."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import mxnet as mx
import numpy as np
from _cases import raises, ranks

import cloudtrain.distributed.mxnet as hvd

ROWS, INPUTS, CLASSES = 6, 5, 3
STEPS = 3
OPTIONS = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


def batch(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([rank, step])
    return generator.random((ROWS, INPUTS), "float32"), generator.integers(0, CLASSES, ROWS)


def joined(step: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*(batch(rank, step) for rank in ranks()), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def network(seed: int) -> mx.gluon.nn.Sequential:
    mx.random.seed(seed)
    net = mx.gluon.nn.Sequential()
    net.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(CLASSES))
    net.initialize(mx.init.Xavier())
    return net


@contextlib.contextmanager
def steps_in_the_timeline(count: int) -> Iterator[None]:
    """The end of the first step is the beginning of the first step in the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        hvd.start_timeline(f"{folder}/trace.json")
        yield
        hvd.stop_timeline()
        [own] = Path(folder).iterdir()
        assert own.read_text().count('"STEP"') == count


def weights(net: mx.gluon.Block) -> dict[str, np.ndarray]:
    return {name: one.data().asnumpy() for name, one in net._collect_params_with_prefix().items()}


def backward(net: mx.gluon.Block, images: np.ndarray, labels: np.ndarray) -> None:
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(mx.nd.array(images)), mx.nd.array(labels))
    loss.backward()


def by_one_process(clip: float | None = None) -> dict[str, np.ndarray]:
    """Return the weights after `STEPS` steps on joined batches, with the seed of rank 0."""
    net = network(seed=0)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", OPTIONS, kvstore=None)
    for step in range(STEPS):
        images, labels = joined(step)
        backward(net, images, labels)
        if clip is not None:
            mx.gluon.utils.clip_global_norm(gradients(net), clip * hvd.size())
        trainer.step(len(images))
    return weights(net)


def gradients(net: mx.gluon.Block) -> list[mx.nd.NDArray]:
    return [one.grad() for one in net.collect_params().values()]


def by_all_ranks(**options: object) -> dict[str, np.ndarray]:
    """Train on all ranks, each with its own batch and initial seed."""
    net = network(seed=hvd.rank())
    hvd.broadcast_parameters(
        net.collect_params()
    )  # deferred initialization: the first batch determines the shapes
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", OPTIONS, **options)
    for step in range(STEPS):
        backward(net, *batch(hvd.rank(), step))
        trainer.step(ROWS)
    return weights(net)


def check(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Assert equality with ``wanted`` within rounding, and bit for bit between ranks."""
    assert found.keys() == wanted.keys()
    for name, weight in found.items():
        np.testing.assert_allclose(weight, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)
        assert len({array.tobytes() for array in hvd.allgather_object(weight)}) == 1, name


def case_trainer() -> None:
    wanted = by_one_process()
    for options in (
        {},
        {"num_groups": 2, "prefix": "net."},
        {"num_groups": 99},
        {"gradient_predivide_factor": 2.0},
    ):
        with steps_in_the_timeline(STEPS - 1):
            check(by_all_ranks(**options), wanted)
    check(by_all_ranks(compression=hvd.Compression.fp16), wanted, 2e-3)


def case_hybrid_network_with_a_frozen_layer() -> None:
    nets = []
    for seed in (hvd.rank(), 0):  # the second is trained on this process only
        mx.random.seed(seed)
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Dense(8, in_units=INPUTS), mx.gluon.nn.Dense(CLASSES, in_units=8))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        net[0].collect_params().setattr("grad_req", "null")
        nets.append(net)
    ours, alone = nets
    hvd.broadcast_parameters(ours.collect_params(), prefix="hybrid.")
    trainer = hvd.DistributedTrainer(ours.collect_params(), "adam")
    reference = mx.gluon.Trainer(alone.collect_params(), "adam", kvstore=None)
    for step in range(STEPS):
        backward(ours, *batch(hvd.rank(), step))
        trainer.step(ROWS)
        backward(alone, *joined(step))
        reference.step(ROWS * hvd.size())
    check(weights(ours), weights(alone))


def case_gradients_are_averages_before_update() -> None:
    net = network(seed=hvd.rank())
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", OPTIONS)
    for step in range(STEPS):
        backward(net, *batch(hvd.rank(), step))
        trainer.allreduce_grads()
        mx.gluon.utils.clip_global_norm(gradients(net), 0.5)
        trainer.update(ROWS)
    check(weights(net), by_one_process(clip=0.5))


def case_module() -> None:
    data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first")
    symbol = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(data, num_hidden=CLASSES, name="last"), name="softmax"
    )

    def train(batches: list[tuple[np.ndarray, np.ndarray]], optimizer: mx.optimizer.Optimizer, seed: int):
        rows = len(batches[0][0])
        module = mx.mod.Module(symbol)
        module.bind([("data", (rows, INPUTS))], [("softmax_label", (rows,))])
        mx.random.seed(seed)
        module.init_params(mx.init.Xavier())
        if isinstance(optimizer, hvd.DistributedOptimizer):
            for parameters in module.get_params():
                hvd.broadcast_parameters(parameters)
            module.set_params(*module.get_params())
        module.init_optimizer(kvstore=None, optimizer=optimizer)
        for images, labels in batches:
            module.forward_backward(mx.io.DataBatch([mx.nd.array(images)], [mx.nd.array(labels)]))
            module.update()
        return {name: one.asnumpy() for name, one in module.get_params()[0].items()}

    total = ROWS * hvd.size()
    wanted = train([joined(n) for n in range(STEPS)], mx.optimizer.SGD(rescale_grad=1 / total, **OPTIONS), 0)
    for options in ({}, {"num_groups": 2, "gradient_predivide_factor": 4.0}):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(rescale_grad=1 / ROWS, **OPTIONS), **options)
        with steps_in_the_timeline(STEPS - 2):  # the last step would end where the next begins
            check(train([batch(hvd.rank(), n) for n in range(STEPS)], optimizer, hvd.rank()), wanted)


def case_optimizer_forwards_attributes() -> None:
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.8)
    inner = mx.optimizer.SGD(lr_scheduler=schedule)
    optimizer = hvd.DistributedOptimizer(inner)
    optimizer.rescale_grad = 0.25
    optimizer.set_lr_mult({"0": 2.0})
    optimizer.set_wd_mult({"0": 3.0})
    assert inner.rescale_grad == 0.25
    assert inner.lr_mult == {"0": 2.0} and inner.wd_mult["0"] == 3.0
    weight, gradient = mx.nd.ones(4), mx.nd.ones(4) * (hvd.rank() + 1)
    for index in ([0], 0):
        several = isinstance(index, list)
        state = optimizer.create_state_multi_precision(0, weight)
        optimizer.update_multi_precision(
            index, *([weight], [gradient]) if several else (weight, gradient), [state] if several else state
        )
    assert optimizer.num_update == inner.num_update == 2
    assert optimizer.learning_rate == inner.learning_rate < 0.8
    mean = np.mean([rank + 1 for rank in ranks()])
    np.testing.assert_allclose(gradient.asnumpy(), mean)
    with raises(AttributeError, "no_such"):
        print(optimizer.no_such)


def case_trainer_unwraps_an_optimizer() -> None:
    net = mx.gluon.nn.Dense(2, in_units=2)
    net.initialize()
    inner = mx.optimizer.SGD()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = hvd.DistributedTrainer(net.collect_params(), hvd.DistributedOptimizer(inner))
    assert trainer.optimizer is inner
    assert any("unwrapped" in str(one.message) for one in caught)


def case_some_of_the_ranks() -> None:
    if hvd.size() == 1:
        return
    first = hvd.add_process_set([0])
    net = mx.gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0}, process_set=first)
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 1)) * hvd.rank())
    loss.backward()
    trainer.step(1)
    assert net.weight.data().asscalar() == 1 - hvd.rank()
    hvd.remove_process_set(first)


def case_parameters_of_several_kinds() -> None:
    root = hvd.size() - 1
    arrays = {"b": mx.nd.ones(3) * hvd.rank(), "a": mx.nd.ones(2, dtype="int64") * hvd.rank()}
    hvd.broadcast_parameters(arrays, root_rank=root)
    assert arrays["a"].asnumpy().tolist() == [root] * 2 and arrays["b"].asnumpy().tolist() == [root] * 3
    norm = mx.gluon.nn.BatchNorm(in_channels=2)
    norm.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    norm.running_mean.set_data(mx.nd.ones(2) * (hvd.rank() + 5))
    hvd.broadcast_parameters(norm.collect_params())
    assert [copy.asnumpy().tolist() for copy in norm.running_mean.list_data()] == [[5, 5]] * 2
    with raises(ValueError, "invalid params of type"):
        hvd.broadcast_parameters([mx.nd.ones(3)])


def case_invalid_arguments() -> None:
    net = mx.gluon.nn.Dense(2, in_units=2)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with raises(hvd.InvalidArgument, "on 2 devices"):
        hvd.DistributedTrainer(net.collect_params(), "sgd")
    for option in ({"num_groups": -1}, {"gradient_predivide_factor": 0.0}):
        with raises(hvd.InvalidArgument, *option):
            hvd.DistributedOptimizer(mx.optimizer.SGD(), **option)
    if hvd.size() == 1:
        return
    words = mx.gluon.nn.Embedding(4, 2, sparse_grad=True)
    words.initialize()
    trainer = hvd.DistributedTrainer(words.collect_params(), "sgd")
    with mx.autograd.record():
        total = words(mx.nd.array([1])).sum()
    total.backward()
    with raises(hvd.InvalidArgument, "sparse_grad=False"):
        trainer.step(1)
