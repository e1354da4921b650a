"""SyncBatchNorm equals BatchNorm on the batches of all ranks together."""

from __future__ import annotations

import os
from typing import Any

import torch
from _cases import raises, run, same_on_all_ranks, seeded
from _training import batches, check, loss_of, make_sgd, mine, weights
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.options import FUSION_THRESHOLD
from cloudtrain.distributed.torch import _state

CHANNELS = 3
SHAPES = [(), (5,), (4, 2), (2, 3, 2)]
"""Dimensions after rows and channels."""


def rows_of(rank: int) -> int:
    return 2 + rank


def plain_layer(inputs: Tensor, **arguments: Any) -> nn.Module:
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    return kinds[inputs.dim()](CHANNELS, **arguments)


def joined(shape: tuple[int, ...], rows: list[int], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Inputs and output gradients of all ranks, with a mean far from zero, where sums of squares lose precision."""
    generator = seeded(4)
    size = (sum(rows), CHANNELS, *shape)
    drawn = [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2)]
    return [(drawn[0] * 2 + 300).to(dtype), drawn[1].to(dtype)]


def part(tensor: Tensor, rows: list[int]) -> Tensor:
    return tensor.split(rows)[hvd.rank()]


def same_weights(layers: tuple[nn.Module, nn.Module], dtype: torch.dtype = torch.float64) -> None:
    for layer in layers:
        layer.to(dtype)
        if layer.weight is not None:
            with torch.no_grad():
                layer.weight.copy_(torch.tensor([0.5, 1.0, -2.0]))
                layer.bias.copy_(torch.tensor([1.0, 0.0, 3.0]))


def compare(
    shape: tuple[int, ...],
    rows: list[int],
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-9,
    steps: int = 2,
    **arguments: Any,
) -> tuple[nn.Module, nn.Module]:
    """Train both layers for a few steps, compare all their results, and return them."""
    inputs, gradients = joined(shape, rows, dtype)
    layers = hvd.SyncBatchNorm(CHANNELS, **arguments), plain_layer(inputs, **arguments)
    same_weights(layers, dtype)
    synchronized, plain = layers
    close = {"rtol": tolerance, "atol": tolerance}
    for step in range(steps):
        whole = (inputs * (step + 1)).requires_grad_()
        own = part(whole.detach(), rows).clone().requires_grad_()
        output, wanted = synchronized(own), plain(whole)
        torch.testing.assert_close(output, part(wanted, rows), **close)
        output.backward(part(gradients, rows))
        wanted.backward(gradients)
        torch.testing.assert_close(own.grad, part(whole.grad, rows), **close)
    for name, parameter in plain.named_parameters():
        summed = hvd.allreduce(synchronized.get_parameter(name).grad, op=hvd.Sum)
        torch.testing.assert_close(summed, parameter.grad, **close)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(synchronized.get_buffer(name), buffer, **close)
        assert same_on_all_ranks(synchronized.get_buffer(name))
    return layers


def case_every_shape() -> None:
    for shape in SHAPES:
        compare(shape, [2] * hvd.size())


def case_batches_of_different_sizes() -> None:
    compare((4,), [rows_of(rank) for rank in range(hvd.size())])


def case_a_rank_without_rows() -> None:
    if hvd.size() > 1:
        compare((4,), [0, *range(2, hvd.size() + 1)])


def case_one_row_per_rank() -> None:
    if hvd.size() > 1:
        compare((), [1] * hvd.size())


def case_every_argument() -> None:
    for arguments in (
        {"momentum": 0.7},
        {"momentum": None},
        {"eps": 0.1},
        {"affine": False},
        {"track_running_stats": False},
    ):
        compare((4,), [rows_of(rank) for rank in range(hvd.size())], **arguments)


def case_single_and_half_precision() -> None:
    rows = [rows_of(rank) for rank in range(hvd.size())]
    compare((4, 2), rows, torch.float32, 1e-4)
    inputs, gradients = ((part(each, rows) - each.mean()).bfloat16() for each in joined((4, 2), rows))
    half = hvd.SyncBatchNorm(CHANNELS).bfloat16()
    single = hvd.SyncBatchNorm(CHANNELS)
    results = []
    for layer, dtype in ((half, torch.bfloat16), (single, torch.bfloat16), (single, torch.float32)):
        own = inputs.detach().to(dtype, copy=True).requires_grad_()
        layer.zero_grad()
        output = layer(own)
        output.backward(gradients.to(dtype))
        assert output.dtype == own.grad.dtype == dtype
        assert layer.weight.grad.dtype == layer.weight.dtype
        results.append([output.float(), own.grad.float(), layer.weight.grad.float()])
    for result in results[:2]:
        torch.testing.assert_close(result, results[2], rtol=0.02, atol=0.02)


def case_strides_of_channels_last() -> None:
    rows = [2] * hvd.size()
    inputs, _ = joined((4, 2), rows)
    layer = hvd.SyncBatchNorm(CHANNELS).double()
    own = part(inputs, rows).to(memory_format=torch.channels_last).requires_grad_()
    output = layer(own)
    output.square().sum().backward()
    assert output.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(output, layer(part(inputs, rows).contiguous()))


def case_evaluation() -> None:
    rows = [rows_of(rank) for rank in range(hvd.size())]
    inputs, _ = joined((4,), rows)
    for arguments in ({}, {"track_running_stats": False}):
        synchronized, plain = compare((4,), rows, **arguments)
        synchronized.eval(), plain.eval()
        before = {name: buffer.clone() for name, buffer in synchronized.named_buffers()}
        torch.testing.assert_close(synchronized(part(inputs, rows)), part(plain(inputs), rows))
        for name, buffer in before.items():
            assert torch.equal(synchronized.get_buffer(name), buffer)
    synchronized.load_state_dict(plain.state_dict())


def case_a_rank_may_evaluate_alone() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS).eval()
    if hvd.rank() == 0:
        layer(torch.ones(2, CHANNELS))


def case_gradients_of_weights_alone() -> None:
    rows = [2] * hvd.size()
    inputs, gradients = joined((), rows)
    layers = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    same_weights(layers)
    layers[0](part(inputs, rows)).backward(part(gradients, rows))
    layers[1](inputs).backward(gradients)
    torch.testing.assert_close(hvd.allreduce(layers[0].weight.grad, op=hvd.Sum), layers[1].weight.grad)


def case_the_same_layer_twice() -> None:
    rows = [2] * hvd.size()
    inputs, gradients = joined((), rows)
    layers = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    same_weights(layers)
    own, whole = part(inputs, rows).clone().requires_grad_(), inputs.clone().requires_grad_()
    layers[0](layers[0](own).tanh()).backward(part(gradients, rows))
    layers[1](layers[1](whole).tanh()).backward(gradients)
    torch.testing.assert_close(own.grad, part(whole.grad, rows))
    torch.testing.assert_close(layers[0].running_var, layers[1].running_var)


def case_training_equals_one_process_with_all_batches() -> None:
    models = []
    for layer in (hvd.SyncBatchNorm, nn.BatchNorm1d):
        torch.manual_seed(6)
        model = nn.Sequential(nn.Linear(4, 8), layer(8), nn.Tanh(), nn.Linear(8, 3)).double()
        sgd = make_sgd(model.parameters())
        alone = layer is nn.BatchNorm1d
        optimizer = sgd if alone else hvd.DistributedOptimizer(sgd, model.named_parameters())
        for inputs, targets in batches(5):
            optimizer.zero_grad()
            loss_of(model, inputs if alone else mine(inputs), targets if alone else mine(targets)).backward()
            optimizer.step()
        models.append(model)
    check(models[0], weights(models[1]))
    torch.testing.assert_close(models[0][1].running_var, models[1][1].running_var)


def unasked() -> int:
    """How many exchanges inside layers this rank has launched without negotiation."""
    return _state.current().client.layer_numbers.count


def case_the_order_is_negotiated_once() -> None:
    if hvd.size() == 1:
        return
    model = nn.Sequential(hvd.SyncBatchNorm(CHANNELS), nn.Linear(CHANNELS, 5), hvd.SyncBatchNorm(5)).double()
    inputs = part(joined((), [2] * hvd.size())[0], [2] * hvd.size()).requires_grad_()
    counts = []
    for _ in range(4):
        before = unasked()
        model(inputs).square().sum().backward()
        counts.append(unasked() - before)
    assert counts == [0, 3, 4, 4], counts


def case_what_follows_may_differ_from_step_to_step() -> None:
    """The second layer is called every other time: what follows the first one is negotiated every time."""
    if hvd.size() == 1:
        return
    first, second = (hvd.SyncBatchNorm(CHANNELS).double() for _ in range(2))
    inputs = part(joined((), [2] * hvd.size())[0], [2] * hvd.size())
    with torch.no_grad():
        for step in range(6):
            output = first(inputs)
            if step % 2:
                output = second(output)
            assert same_on_all_ranks(output.sum(0) * 0 + first.running_mean)


def case_different_orders() -> None:
    """Also of layers of one size: the statistics of different layers are not mixed."""
    if hvd.size() == 1:
        return
    layers = [hvd.SyncBatchNorm(CHANNELS) for _ in range(2)]
    for layer in layers:
        layer(torch.ones(2, CHANNELS))
    with raises(hvd.CollectiveError, "sync_batch_norm.forward", "the ranks disagree on layer: rank 0: "):
        layers[0 if hvd.rank() else 1](torch.ones(2, CHANNELS))
    for _ in range(3):
        layers[0](torch.ones(2, CHANNELS))


def case_joined_ranks_have_no_values() -> None:
    """Rank r has 2 + 2 r batches: the statistics are those of the ranks that still have some."""
    if hvd.size() == 1:
        return
    layers = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    same_weights(layers)
    rows = [rows_of(rank) for rank in range(hvd.size())]
    inputs, gradients = joined((), rows)
    for _ in range(2):
        for step in range(2 + 2 * hvd.rank()):
            left = step // 2  # ranks that have joined
            whole = (torch.cat(inputs.split(rows)[left:]) + step).requires_grad_()
            own = (part(inputs, rows) + step).requires_grad_()
            layers[1](whole).backward(torch.cat(gradients.split(rows)[left:]))
            layers[0](own).backward(part(gradients, rows))
            torch.testing.assert_close(own.grad, whole.grad.split(rows[left:])[hvd.rank() - left])
            torch.testing.assert_close(layers[0].running_mean, layers[1].running_mean)
        assert hvd.join() == hvd.size() - 1
        for buffer in layers[0].state_dict(), layers[1].state_dict():
            hvd.broadcast_parameters(buffer, root_rank=hvd.size() - 1)


def case_parameters_that_some_ranks_do_not_use() -> None:
    """Buckets of gradients then leave at different times between the exchanges of the layers."""
    torch.manual_seed(3)
    model = nn.ModuleDict()
    model["in"], model["norm"] = nn.Linear(4, 8), hvd.SyncBatchNorm(8)
    model["sometimes"], model["last"] = nn.Linear(8, 8), hvd.SyncBatchNorm(8)
    model.double()
    before = os.environ.get(FUSION_THRESHOLD)
    os.environ[FUSION_THRESHOLD] = "1"  # a bucket for every parameter
    try:
        optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    finally:
        del os.environ[FUSION_THRESHOLD]
        os.environ.update({} if before is None else {FUSION_THRESHOLD: before})
    for step in range(6):
        optimizer.zero_grad()
        hidden = model["norm"](model["in"](torch.randn(4, 4, dtype=torch.float64)))
        if (step + hvd.rank()) % 2:
            hidden = hidden + model["sometimes"](hidden)
        model["last"](hidden).pow(3).sum().backward()
        optimizer.step()
    for value in model.state_dict().values():
        assert same_on_all_ranks(value)


def case_errors() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    with raises(ValueError, "at least 2D input (got 1D input)"):
        layer(torch.ones(CHANNELS))
    if hvd.size() == 1:
        return
    with raises(ValueError, "(rows, 3, ...)", "torch.float32 of (2, 4)"):
        layer(torch.ones(2, 4))
    with raises(ValueError, "torch.int64"):
        layer(torch.ones(2, 3, dtype=torch.int64))
    with raises(ValueError, "Expected more than 1 value per channel", "got 1 on all ranks"):
        layer(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))


if __name__ == "__main__":
    run(globals())
