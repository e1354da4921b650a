"""DistributedOptimizer: arguments, wrapped optimizers, errors, and parameters of every kind."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import warnings
from collections.abc import Iterator

import torch
from _cases import DEVICE, raises, run
from _training import batches, check, loss_of, make_model, make_sgd, mine, train_alone, weights
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.options import logger


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs, targets = next(batches(1))
    optimizer.zero_grad()
    loss_of(model, mine(inputs), mine(targets)).backward()
    optimizer.step()


def case_class_state_and_hooks_are_kept() -> None:
    model = make_model()
    plain = torch.optim.Adam(model.parameters(), lr=0.5, amsgrad=True)
    one_step(model, plain)
    counts = {"pre": 0, "post": 0}
    plain.register_step_pre_hook(lambda *_: counts.update(pre=counts["pre"] + 1))
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    optimizer.register_step_post_hook(lambda *_: counts.update(post=counts["post"] + 1))
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.defaults["amsgrad"] is True
    assert len(optimizer.state) == len(list(model.parameters()))
    one_step(model, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    one_step(model, optimizer)
    assert counts == {"pre": 2, "post": 2}
    assert optimizer.state_dict()["state"][0]["step"] == 3


def case_bad_arguments() -> None:
    model = make_model()
    sgd = make_sgd(model.parameters())
    named = list(model.named_parameters())
    with raises(ValueError, "sequence of tuples"):
        hvd.DistributedOptimizer(sgd, model.parameters())
    with raises(ValueError, "must be unique", "twice"):
        hvd.DistributedOptimizer(sgd, [("twice", parameter) for _, parameter in named])
    with raises(ValueError, "not named", "(3,)"):
        hvd.DistributedOptimizer(sgd, named[:-1])
    with raises(ValueError, "gradient_predivide_factor not supported with op != Average"):
        hvd.DistributedOptimizer(sgd, named, op=hvd.Sum, gradient_predivide_factor=2.0)
    with raises(ValueError, "op="):
        hvd.DistributedOptimizer(sgd, named, op=hvd.Max)
    with raises(ValueError, "backward_passes_per_step must be > 0"):
        hvd.DistributedOptimizer(sgd, named, backward_passes_per_step=0)
    with raises(ValueError, "backward_passes_per_step must be > 0"):
        hvd.DistributedOptimizer(sgd, named).set_backward_passes_per_step(0)
    with raises(ValueError, "is not registered"):
        hvd.DistributedOptimizer(sgd, named, process_set=hvd.ProcessSet([0]))
    with raises(ValueError, "already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd, named), named)


def case_copies() -> None:
    for op in (hvd.Average, hvd.Adasum):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), op=op)
        for copied in (copy.deepcopy, copy.copy, pickle.dumps):
            with raises(ValueError, "a DistributedOptimizer cannot be copied or pickled", "state_dict()"):
                copied(optimizer)


def case_wrong_order_of_calls() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, *next(batches(1))).backward()
        with raises(AssertionError, "more than backward_passes_per_step times"):
            loss_of(model, *next(batches(1))).backward()
        with raises(AssertionError, "the gradients of this step are invalid"):
            optimizer.synchronize()
        model.load_state_dict(make_model().state_dict())
        one_step(model, optimizer)
        check(model)


def case_passes_are_not_changed_in_the_middle_of_a_step() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        make_sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2
    )
    loss_of(model, *next(batches(1))).backward()
    with raises(AssertionError, "after loss.backward() but before optimizer.step()"):
        optimizer.set_backward_passes_per_step(3)
    with raises(AssertionError, "prohibited as it can cause a race condition"):
        optimizer.zero_grad()
    optimizer.synchronize()


def case_loading_a_state_drops_gradients() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    start, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    for _ in range(3):
        loss_of(model, *next(batches(1))).backward()
        model.load_state_dict(start)
        optimizer.load_state_dict(state)
        optimizer.zero_grad()
        for inputs, targets in batches(6):
            optimizer.zero_grad(set_to_none=False)
            loss_of(model, mine(inputs), mine(targets)).backward()
            optimizer.step()
        check(model, train_alone(make_sgd))


def case_ranks_that_initialize_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for step, (inputs, targets) in enumerate(batches(6)):
        if step == 3:
            hvd.shutdown()
            hvd.init(start_timeout=240, timeout=120)
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
    check(model, train_alone(make_sgd))


def case_ranks_that_initialize_again_within_a_step() -> None:
    for passes, failing, calls_zero_grad in ((1, 1, True), (1, 1, False), (3, 2, True)):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            make_sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=passes
        )
        for step, (inputs, targets) in enumerate(batches(6)):
            if step == 3:
                for _ in range(failing):
                    loss_of(model, mine(inputs), mine(targets)).backward()
                hvd.barrier()  # a rank that leaves earlier fails the others' backward
                hvd.shutdown()
                hvd.init(start_timeout=240, timeout=120)
                (optimizer if calls_zero_grad else model).zero_grad()
            for _ in range(passes):
                (loss_of(model, mine(inputs), mine(targets)) / passes).backward()
            optimizer.step()
            optimizer.zero_grad()
        check(model, train_alone(make_sgd))


def case_gradients_whose_memory_a_script_replaces() -> None:
    """``.grad.data = ...``, and models that are converted or moved, and back, between the steps or for good."""
    for passes, early in ((1, False), (1, True), (2, False)):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            make_sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=passes
        )
        for step, (inputs, targets) in enumerate(batches(6)):
            if step == 2:
                model._apply(torch.clone)  # as model.cpu() does on a GPU
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            for _ in range(passes):
                (loss_of(model, mine(inputs), mine(targets)) / passes).backward()
            if not early:
                optimizer.synchronize()
            for parameter in model.parameters():
                parameter.grad.data = parameter.grad.data.clone()
            with contextlib.nullcontext() if early else optimizer.skip_synchronize():
                optimizer.step()
        check(model, train_alone(make_sgd))
        model.float()
        optimizer.state.clear()
        optimizer.zero_grad()
        for inputs, targets in batches(3):
            loss_of(model, mine(inputs).float(), mine(targets).float()).backward()
            optimizer.step()
            optimizer.zero_grad()
        check(model)


def case_synchronizing_twice_warns_and_is_correct() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        assert ["without optimizer.skip_synchronize()" in str(each.message) for each in caught] == [True]
    check(model, train_alone(make_sgd))


def case_parameters_that_differ_between_ranks() -> None:
    if hvd.size() == 1:
        return
    last = hvd.size() - 1
    rest = list(range(last))
    model = make_model(width=9 if hvd.rank() == last else 8)
    with raises(
        ValueError,
        f"from parameter 0 on: on ranks {rest} it is 0.weight (8, 4) float64 on {DEVICE}",
        f"{[last]}",
    ):
        hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    model = make_model()
    model[4].requires_grad_(hvd.rank() != last)
    for op in (hvd.Average, hvd.Adasum):
        with raises(ValueError, "from parameter 4 on", f"on ranks {[last]} it is missing"):
            hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), op=op)
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(hvd.rank())
    try:
        model = make_model()
        with raises(
            ValueError, "different settings", f"on ranks [{last}] it is HOROVOD_FUSION_THRESHOLD={last}"
        ):
            hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    finally:
        del os.environ["HOROVOD_FUSION_THRESHOLD"]
    model = make_model()
    model[2].to(torch.float64 if hvd.rank() == last else torch.float32)
    with raises(ValueError, "from parameter 2 on", "2.weight (8, 8) float32", "2.weight (8, 8) float64"):
        hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    model = make_model()
    named = list(model.named_parameters())
    if hvd.rank() == last:
        named[1], named[3] = named[3], named[1]
    with raises(
        ValueError, "from parameter 1 on", f"on ranks {rest} it is 0.bias", f"on ranks {[last]} it is 2.bias"
    ):
        hvd.DistributedOptimizer(make_sgd(model.parameters()), named)
    with raises(ValueError, "from parameter 0 on", f"0.weight (8, 4) float64 on {DEVICE} in group 0"):
        groups = [[model[0].weight if hvd.rank() == last else model[2].weight]]
        hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), groups=groups)
    check(train_with(model))


def train_with(model: nn.Module) -> nn.Module:
    """One correct step after all the refused ones."""
    one_step(model, hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters()))
    return model


def case_a_deleted_optimizer_reduces_nothing() -> None:
    model = make_model()
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
        one_step(model, optimizer)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()))
    del optimizer
    for _ in range(2):
        loss_of(model, *next(batches(1))).backward()


class Branches(nn.Module):
    """Each rank uses another branch, and no rank the last one; wide enough for two buckets."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        ways = (nn.Sequential(nn.Linear(4, 40000), nn.Linear(40000, 3)) for _ in range(hvd.size() + 1))
        self.ways = nn.ModuleList(ways).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.ways[hvd.rank()](inputs)
        return result


def case_parameters_that_some_ranks_do_not_use() -> None:
    model = Branches()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    start = weights(model)
    for inputs, targets in batches(4):
        optimizer.zero_grad()
        output = model.ways[hvd.rank()][1].weight
        (wanted,) = torch.autograd.grad(loss_of(model, mine(inputs), mine(targets)), output)
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.synchronize()
        torch.testing.assert_close(output.grad, wanted / hvd.size())
        with optimizer.skip_synchronize():
            optimizer.step()
    check(model)
    assert not torch.equal(start, weights(model))


def case_a_rank_without_any_gradient() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        if hvd.rank() == 0:
            loss_of(model, inputs, targets).backward()
        optimizer.step()
    check(model)


def case_groups_frozen_and_added_parameters() -> None:
    model, single = make_model(), make_model()
    stepping = []
    for each in (model, single):
        first, middle, last = each[0], each[2], each[4]
        first.requires_grad_(False)
        groups = [
            {"params": [middle.bias, last.bias], "weight_decay": 0.0},
            {"params": [first.weight, first.bias, middle.weight], "lr": 0.05},
        ]
        sgd = make_sgd(groups)
        stepping.append(hvd.DistributedOptimizer(sgd, each.named_parameters()) if each is model else sgd)
    for step, (inputs, targets) in enumerate(batches(9)):
        for each, optimizer in zip((model, single), stepping, strict=True):
            if step == 3:
                optimizer.add_param_group({"params": [each[4].weight], "lr": 0.02})
            if step == 5:
                each[0].requires_grad_(True)
            if step == 7:
                each[2].requires_grad_(False)
            x, y = (mine(inputs), mine(targets)) if each is model else (inputs, targets)
            optimizer.zero_grad()
            loss_of(each, x, y).backward()
            optimizer.step()
    check(model, weights(single))


def case_mixed_types() -> None:
    torch.manual_seed(2)
    half, full = nn.Linear(4, 4).bfloat16(), nn.Linear(4, 3)
    model = nn.ModuleList([half, full])
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        output = full(half(mine(inputs).bfloat16()).float())
        nn.functional.mse_loss(output, mine(targets).float()).backward()
        optimizer.step()
    assert half.weight.grad.dtype == torch.bfloat16
    check(model)


def case_strides_of_channels_last() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters())
    torch.manual_seed(hvd.rank())
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    local = torch.autograd.grad(model(images).square().mean(), model.weight)[0]
    model(images).square().mean().backward()
    optimizer.step()
    assert model.weight.grad.stride() == model.weight.stride()
    torch.testing.assert_close(model.weight.grad, hvd.allreduce(local))


def case_the_comparison_can_fail() -> None:
    """It fails if nothing is averaged."""
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = make_sgd(model.parameters())
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
    with raises(AssertionError):
        check(model, train_alone(make_sgd))


def case_a_schedule_of_the_wrapped_optimizer_survives_a_broadcast_of_the_state() -> None:
    model = make_model()
    wrapped = make_sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(wrapped, step_size=1, gamma=0.5)
    before = wrapped.param_groups[0]["lr"]
    optimizer = hvd.DistributedOptimizer(wrapped, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, 0)
    for inputs, targets in batches(2):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == before / 4


def case_weights_that_differ_at_the_first_step() -> None:
    for layer in (nn.Linear(3, 2), nn.Embedding(3, 2, sparse=True), nn.Linear(3, 2).bfloat16()):
        for same in (True, False):
            torch.manual_seed(0 if same else hvd.rank())
            nn.init.uniform_(layer.weight)
            plain = torch.optim.SGD(layer.parameters(), lr=0.1)
            optimizer = hvd.DistributedOptimizer(plain, layer.named_parameters())
            with logged() as lines:
                for _ in range(2):
                    optimizer.zero_grad()
                    inputs = torch.ones(1, 3, dtype=layer.weight.dtype, device=DEVICE)
                    layer(inputs.int() if isinstance(layer, nn.Embedding) else inputs).sum().backward()
                    optimizer.step()
            warned = [line for line in lines if "the ranks start with different weights: weight." in line]
            assert len(warned) == (not same and hvd.size() > 1 and hvd.rank() == 0), lines
            del optimizer


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    run(globals())
