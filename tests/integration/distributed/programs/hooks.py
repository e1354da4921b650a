"""Hooks of the script see each rank's own gradients, as with DistributedDataParallel, and may change them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from _cases import run
from _training import batches, check, loss_of, make_model, make_sgd, mine, weights
from torch import nn

import cloudtrain.distributed.torch as hvd

WIDTH = 64
Hook = Callable[[torch.Tensor], None]


def scale(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(hvd.rank() + 1.0)


def replace(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * (hvd.rank() + 1.0)


def scaled_alone() -> torch.Tensor:
    """The weights after the same training in this process, with rank r's gradients times r + 1."""
    model = make_model(WIDTH)
    optimizer = make_sgd(model.parameters())
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        for rank in range(hvd.size()):
            loss = loss_of(model, mine(inputs, rank), mine(targets, rank))
            (loss * (rank + 1) / hvd.size()).backward()
        optimizer.step()
    return weights(model)


def train_with(hook: Hook, buckets: str) -> nn.Module:
    os.environ["HOROVOD_FUSION_THRESHOLD"] = buckets
    model = make_model(WIDTH)
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    del os.environ["HOROVOD_FUSION_THRESHOLD"]
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
    return model


def case_gradients_that_hooks_change() -> None:
    """The hooks are younger than the optimizer. A bucket was sent while they wrote to it."""
    before = os.environ.get("HOROVOD_FUSION_THRESHOLD")
    try:
        for buckets in ("0", "20000", "100000000"):
            for hook in (scale, replace):
                check(train_with(hook, buckets), scaled_alone())
    finally:
        if before is not None:
            os.environ["HOROVOD_FUSION_THRESHOLD"] = before


def case_sparse_gradients_that_hooks_change() -> None:
    torch.manual_seed(1)
    model = nn.ModuleList([nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1)]).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(replace)
    for _ in range(3):
        optimizer.zero_grad()
        model[1](model[0](torch.tensor([1, 2]))).sum().backward()
        optimizer.step()
    check(model)
    wanted = model[1].bias.grad.new_tensor([(hvd.size() + 1.0)])
    torch.testing.assert_close(model[1].bias.grad, wanted)


def case_steps_within_the_backward_pass() -> None:
    model, single = make_model(), make_model()
    for each, joined in ((model, False), (single, True)):
        steps: dict[torch.Tensor, Any] = {}
        for name, parameter in each.named_parameters():
            optimizer: Any = torch.optim.SGD([parameter], lr=0.1)
            if not joined:
                optimizer = hvd.DistributedOptimizer(optimizer, [(name, parameter)])
            steps[parameter] = optimizer

        def step(parameter: torch.Tensor, steps: Any = steps) -> None:
            steps[parameter].step()
            steps[parameter].zero_grad()

        for parameter in each.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for inputs, targets in batches(3):
            pair = (inputs, targets) if joined else (mine(inputs), mine(targets))
            loss_of(each, *pair).backward()
        steps.clear()  # the hooks refer to it
    check(model, weights(single))


def case_hooks_that_compute_gradients() -> None:
    """A backward pass begins within another one."""
    for kind in ("tensor", "accumulated"):
        model, single = (nn.ModuleList([make_model(), make_model()]) for _ in range(2))
        optimizer: Any = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
        for each, stepping, joined in (
            (model, optimizer, False),
            (single, make_sgd(single.parameters()), True),
        ):
            batch: list[torch.Tensor] = []

            def inner(_: torch.Tensor, each: Any = each, batch: Any = batch) -> None:
                with torch.enable_grad():
                    loss_of(each[1], *batch).backward()

            leaf: Any = each[0][2].weight
            (leaf.register_hook if kind == "tensor" else leaf.register_post_accumulate_grad_hook)(inner)
            for inputs, targets in batches(3):
                batch[:] = (inputs, targets) if joined else (mine(inputs), mine(targets))
                stepping.zero_grad()
                loss_of(each[0], *batch).backward()
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
                stepping.step()
        check(model, weights(single))


def case_hooks_of_modules() -> None:
    model, single = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for each, stepping, joined in ((model, optimizer, False), (single, make_sgd(single.parameters()), True)):
        each[2].register_full_backward_hook(lambda _, inputs, __: (inputs[0] * 0.5,))
        each[2].register_full_backward_pre_hook(lambda _, outputs: (outputs[0] * 0.7,))
        for inputs, targets in batches(3):
            stepping.zero_grad()
            pair = (inputs, targets) if joined else (mine(inputs), mine(targets))
            loss_of(each, *pair).backward()
            stepping.step()
    check(model, weights(single))


if __name__ == "__main__":
    run(globals())
