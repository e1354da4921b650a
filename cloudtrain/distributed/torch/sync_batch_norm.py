"""Batch normalization over the batches of all ranks, and its sums over ranks inside a model's layers.

The sums are not negotiated once the ranks have agreed on their order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation import messages
from cloudtrain.distributed.reduce_op import ScaledOp, Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._failures import watch_stalls
from cloudtrain.distributed.torch._launches import Handle
from cloudtrain.distributed.torch._operation import in_same_order, type_name
from cloudtrain.distributed.torch._reductions import reduce_now_, reduce_tensors
from cloudtrain.distributed.torch._state import AgreedOrder, Context, global_process_set
from cloudtrain.observe.heartbeat import enter_collective, leave_collective


class SyncBatchNorm(_BatchNorm):
    """``torch.nn.BatchNorm1d`` to ``3d`` with the statistics of all ranks' batches together.

    The ranks' batches may differ in size and may be empty. In evaluation this is the plain layer, except that without
    tracked statistics it uses those of all ranks' batches, as in training. All ranks call their layers in the same
    order, forward and backward: the ranks negotiate this order when it first occurs, and whenever it changes. Gradients
    of weight and bias are this rank's contribution, for an optimizer that sums or averages them.

    Args:
        num_features: channels, the second dimension of the input.
        eps: added to the variance.
        momentum: weight of the new batch in the running statistics; None weighs all batches equally.
        affine: whether to learn a weight and a bias.
        track_running_stats: whether to keep running statistics.

    Raises:
        InvalidArgument: the input of a call is not floating-point of shape ``(rows, num_features, ...)``, or all ranks
            together have fewer than two values per channel. Also a ValueError.
    """

    def forward(self, input: Tensor) -> Tensor:
        batch_statistics = self.training or not self.track_running_stats
        if not batch_statistics or _state.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, variance, count = _Normalize.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, self
        )
        if self.training and self.track_running_stats:
            self._track(mean, variance * count / (count - 1))
        normalized: Tensor = output
        return normalized

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise InvalidArgument(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) != self.num_features or not input.is_floating_point():
            raise InvalidArgument(
                f"SyncBatchNorm expects floating-point input of shape (rows, {self.num_features}, ...), "
                f"and got {input.dtype} of {tuple(input.shape)}"
            )

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor: Any = self.momentum
        if factor is None:
            factor = self.num_batches_tracked.double().reciprocal()
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            weight = factor.to(running.dtype) if isinstance(factor, Tensor) else factor
            running.lerp_(new.to(running.dtype), weight)


class _Normalize(torch.autograd.Function):
    """Returns the output, and over all ranks the mean, biased variance and number of values of each channel.

    The statistics are float64, so that sums and sums of squares over ranks lose no relevant precision.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, layer: nn.Module
    ) -> tuple[Tensor, ...]:
        values = _wide(input)
        own = values.numel() // values.size(1)
        own_mean = _channel_sum(values) / max(own, 1)
        own_squares = _channel_sum((values - _spread(own_mean, values)).square_())
        mean = own_mean.double()
        # Nothing here waits for a GPU: the number is written by a kernel, not copied from the host.
        counted = torch.full((1,), own, dtype=mean.dtype, device=mean.device)
        sums = torch.cat([own * mean, own_squares.double() + own * mean.square(), counted])
        ctx.number = _number_of(layer)
        _sum_(sums, "sync_batch_norm.forward", ctx.number)
        moments, count = sums.tensor_split((sums.numel() - 1,))
        if own < 2 and count < 2:  # with two values on this rank, the total need not be read
            raise InvalidArgument(
                f"Expected more than 1 value per channel when training, got {int(count)} on all ranks together"
            )
        mean, squares = (moments / count).chunk(2)
        variance = (squares - mean.square()).clamp_(min=0.0)
        ctx.save_for_backward(input, weight, mean, torch.rsqrt(variance + eps), count)
        ctx.mark_non_differentiable(mean, variance, count)
        statistics = mean.to(values.dtype), variance.to(values.dtype)
        weight, bias = (each if each is None else each.to(values.dtype) for each in (weight, bias))
        output = nn.functional.batch_norm(values, *statistics, weight, bias, eps=eps)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        input, weight, mean, inverse_deviation, count = ctx.saved_tensors
        values, gradient = _wide(input), _wide(gradient)
        scale = _spread(inverse_deviation, values)
        normalized = (values - _spread(mean, values)) * scale
        sums = torch.cat([_channel_sum(gradient), _channel_sum(gradient * normalized)])
        for_bias, for_weight = sums.chunk(2)
        totals = sums.to(torch.float64, copy=True)
        _sum_(totals, "sync_batch_norm.backward", ctx.number)
        gradient_mean, projection = (_spread(each, values) for each in (totals / count).chunk(2))
        for_input = (gradient - gradient_mean - normalized * projection) * scale
        if weight is None:
            return for_input.to(input.dtype), None, None, None, None
        for_input = for_input * _spread(weight, values)
        return for_input.to(input.dtype), for_weight.to(weight.dtype), for_bias.to(weight.dtype), None, None


def _wide(tensor: Tensor) -> Tensor:
    """``tensor`` in at least single precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _channel_sum(tensor: Tensor) -> Tensor:
    return tensor.sum([0, *range(2, tensor.dim())])


def _spread(channels: Tensor, like: Tensor) -> Tensor:
    """One number per channel, in the type of ``like`` and in a shape that broadcasts over it."""
    return channels.to(like.dtype).reshape(-1, *[1] * (like.dim() - 2))


def _number_of(layer: Any) -> int:
    """The number of ``layer``, which is the same on all ranks that use their layers in the same order."""
    return _order(_state.current()).number(layer)


def _sum_(tensor: Tensor, name: str, number: int) -> None:
    """Sum ``tensor`` over all ranks, in place.

    Uses a separate process group, because in the backward pass the ranks may launch these sums and the buckets of
    gradients in different orders.

    Args:
        name: the name of the exchange.
        number: the number of the layer.

    Raises:
        CollectiveError: a rank died, or requested something else.
    """
    context = _state.current()
    order = _order(context)
    exchange = (name, number, tensor.numel(), type_name(tensor), tensor.device.type)
    try:
        if in_same_order():
            reduce_tensors([tensor], ScaledOp(Sum), name, global_process_set, in_place=True).wait()
            return
        if order.expects(exchange):
            _sum_without_asking(context, tensor, f"{name} of layer {number}")
        else:
            _negotiate(context, tensor, name, number)
    except BaseException:
        order.restart(context.client.layer_numbers.joins)
        raise
    order.passed(exchange)


def _sum_without_asking(context: Context, tensor: Tensor, name: str) -> None:
    watch_stalls(context)
    enter_collective()
    try:
        reduce_now_(tensor, Sum, name, context.layers.group)
    finally:
        leave_collective()


def _negotiate(context: Context, tensor: Tensor, name: str, number: int) -> None:
    if context.layers.group is None:
        request = messages.open_layer_group()
        pending = context.client.submit(request, lambda _: context.open_layer_group())
        Handle(request.label, pending, lambda: None).wait()
    reduce_tensors(
        [tensor], ScaledOp(Sum), name, global_process_set, in_place=True, must_match={"layer": number}
    ).wait()


def _order(context: Context) -> AgreedOrder:
    order, joins = context.layers, context.client.layer_numbers.joins
    if order.joins != joins:
        order.restart(joins)
    return order
