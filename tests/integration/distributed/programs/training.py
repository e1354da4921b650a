"""Training with DistributedOptimizer equals training in one process with the batches of all ranks."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from _cases import DEVICE, run
from _host_reads import HostReads
from _training import (
    MakeOptimizer,
    batches,
    check,
    loss_of,
    make_model,
    make_sgd,
    mine,
    train_alone,
    weights,
)
from torch import nn

import cloudtrain.distributed.torch as hvd

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": make_sgd,
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW, one by one": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=False),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
}


def case_equals_one_process_with_all_batches() -> None:
    for make_optimizer in OPTIMIZERS.values():
        for set_to_none in (True, False):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(make_optimizer(model.parameters()), model.named_parameters())
            for inputs, targets in batches(6):
                optimizer.zero_grad(set_to_none=set_to_none)
                loss_of(model, mine(inputs), mine(targets)).backward()
                optimizer.step()
            check(model, train_alone(make_optimizer))


def case_a_step_reads_nothing_on_the_host() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    inputs, targets = next(batches(1))
    inputs, targets, large = mine(inputs), mine(targets), torch.ones(20_000)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        optimizer.step()
        hvd.allreduce(large, name="large")
        with hvd.same_order():
            hvd.allreduce_(large)

    for _ in range(2):  # the first step agrees on buckets
        step()
    with HostReads() as reads:
        step()
    assert reads.found == []
    with HostReads() as reads:
        large[0].item()
    assert reads.found, "the counter counts"


class InThreads(torch.autograd.Function):
    """Runs the backward passes of several losses in a thread each, within that of the result."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, losses: list[torch.Tensor]) -> torch.Tensor:
        ctx.losses = losses
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with ThreadPoolExecutor(len(ctx.losses)) as pool:
            list(pool.map(torch.Tensor.backward, ctx.losses))
        return gradient, None


def case_hooks_in_several_threads() -> None:
    """As with parameters on several devices: autograd then calls their hooks from several threads."""
    buckets, interval = os.environ.get("HOROVOD_FUSION_THRESHOLD"), sys.getswitchinterval()
    os.environ["HOROVOD_FUSION_THRESHOLD"] = "0"  # a bucket for each gradient
    sys.setswitchinterval(1e-6)
    try:
        parts = [nn.ModuleList(nn.Linear(2, 2) for _ in range(20)) for _ in range(3)]
        model = nn.ModuleList([*parts, nn.Linear(2, 2)])
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
        for _ in range(6):
            optimizer.zero_grad()
            inputs = torch.full((1, 2), hvd.rank() + 1.0)
            losses = [sum(layer(inputs).sum() for layer in part) for part in parts]
            anchor = torch.zeros((), requires_grad=True)
            joined = InThreads.apply(anchor, losses)
            (joined + model[3](inputs).sum()).backward()
            optimizer.step()
            for parameter in model.parameters():
                wanted = 1.0 if parameter.dim() == 1 else (hvd.size() + 1) / 2
                torch.testing.assert_close(parameter.grad, torch.full_like(parameter, wanted))
    finally:
        sys.setswitchinterval(interval)
        os.environ.pop("HOROVOD_FUSION_THRESHOLD")
        if buckets is not None:
            os.environ["HOROVOD_FUSION_THRESHOLD"] = buckets


def case_gradients_are_averages_in_buckets() -> None:
    model = make_model(width=400)
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()))
    inputs, targets = next(batches(1))
    wanted = torch.autograd.grad(loss_of(model, inputs, targets), list(model.parameters()))
    loss_of(model, mine(inputs), mine(targets)).backward()
    optimizer.synchronize()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
    # The first bucket is full at 1 MB, with the last three layers' 1.3 MB; the second has the rest.
    assert len(storages) == (2 if hvd.size() > 1 else 6)
    with optimizer.skip_synchronize():
        optimizer.step()


def case_sum_and_divided_average() -> None:
    arguments = ({"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}, {"gradient_predivide_factor": 0.5})
    for given in arguments:
        model = make_model()
        scale = hvd.size() if given.get("op") == hvd.Sum else 1
        optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), **given)
        for inputs, targets in batches(6):
            optimizer.zero_grad()
            (loss_of(model, mine(inputs), mine(targets)) / scale).backward()
            optimizer.step()
        check(model, train_alone(make_sgd))


def case_accumulation() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        make_sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=3
    )
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        for part in range(3):
            rows = slice(2 * part, 2 * part + 2)
            (loss_of(model, mine(inputs)[rows], mine(targets)[rows]) / 3).backward()
        optimizer.step()
    check(model, train_alone(make_sgd))

    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    loss_of(model, mine(inputs), mine(targets)).backward()
    optimizer.step()
    check(model)


def case_fewer_passes_than_announced() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), backward_passes_per_step=4)
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
    check(model, train_alone(make_sgd))


def case_clipping() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def case_synchronized_gradients_are_not_reduced_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), op=hvd.Sum)
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        (loss_of(model, mine(inputs), mine(targets)) / hvd.size()).backward()
        optimizer.synchronize()
        optimizer.step()
    check(model, train_alone(make_sgd))


def case_gradient_scaler() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
    for step, (inputs, targets) in enumerate(batches(6)):
        optimizer.zero_grad()
        loss = loss_of(model, mine(inputs), mine(targets))
        if step == 2 and hvd.rank() == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0, "the step that is infinite on one rank is skipped on all"
    assert bool(weights(model).isfinite().all())
    check(model)


def case_gradient_scaler_without_synchronize() -> None:
    """`scaler.step` waits for the gradients by itself."""

    def make_fused(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01, fused=True)

    for make_optimizer, op in ((make_sgd, hvd.Average), (make_sgd, hvd.Sum), (make_fused, hvd.Average)):
        model = make_model()
        plain = make_optimizer(model.parameters())
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
        share = hvd.size() if op == hvd.Sum else 1
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
        for inputs, targets in batches(6):
            for infinite in (True, False):
                optimizer.zero_grad()
                loss = loss_of(model, mine(inputs), mine(targets)) / share
                if infinite and hvd.rank() == 0:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    scaler.step(optimizer)
                scaler.update()
        assert scaler.get_scale() == 16.0, "six steps are infinite on one rank, and skipped on all"
        check(model, train_alone(make_optimizer))


def case_schedulers() -> None:
    model, single = make_model(), make_model()
    plain = make_sgd(model.parameters())
    before = torch.optim.lr_scheduler.StepLR(plain, 2, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    alone = make_sgd(single.parameters())
    schedules = [
        torch.optim.lr_scheduler.StepLR(alone, 2, 0.5),
        torch.optim.lr_scheduler.ExponentialLR(alone, 0.9),
    ]
    for inputs, targets in batches(6):
        for each, stepping, x, y in (
            (model, optimizer, mine(inputs), mine(targets)),
            (single, alone, inputs, targets),
        ):
            stepping.zero_grad()
            loss_of(each, x, y).backward()
            stepping.step()
        for schedule in (before, after, *schedules):
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == alone.param_groups[0]["lr"]
    check(model, weights(single))


def case_closures() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for inputs, targets in batches(6):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, mine(inputs), mine(targets))  # noqa: B023
            loss.backward()
            return loss

        joined = loss_of(model, inputs, targets)
        torch.testing.assert_close(optimizer.step(closure), joined)
    check(model, train_alone(make_sgd))


def case_line_search() -> None:
    model, single = make_model(), make_model()
    inputs, targets = next(batches(1))
    for each, x, y in ((model, mine(inputs), mine(targets)), (single, inputs, targets)):
        optimizer = torch.optim.LBFGS(each.parameters(), max_iter=8, line_search_fn="strong_wolfe")
        if each is model:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

        def closure() -> float:
            optimizer.zero_grad()  # noqa: B023
            loss = loss_of(each, x, y)  # noqa: B023
            loss.backward()
            return loss

        optimizer.step(closure)
    torch.testing.assert_close(weights(model), weights(single), rtol=1e-6, atol=1e-6)
    check(model)


def case_compression() -> None:
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            make_sgd(model.parameters()), model.named_parameters(), compression=compression
        )
        for inputs, targets in batches(6):
            optimizer.zero_grad()
            loss_of(model, mine(inputs), mine(targets)).backward()
            optimizer.step()
        check(model)
        torch.testing.assert_close(weights(model), train_alone(make_sgd), rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    run(globals())
