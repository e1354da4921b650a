"""After the last backward pass of a step, everything sees averaged gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from _cases import DEVICE, raises, run, same_on_all_ranks
from _training import batches, check, loss_of, make_model, make_sgd, mine, train_alone, weights
from torch import nn
from torch.utils.checkpoint import checkpoint

import cloudtrain.distributed.torch as hvd


def wrapped(model: nn.Module, **arguments: Any) -> Any:
    return hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), **arguments)


def averaged(model: nn.Module) -> bool:
    """Whether the gradients have the same bits on all ranks."""
    gradients = [p.grad.to_dense().flatten() for p in model.parameters() if p.grad is not None]
    counts = torch.tensor([sum(map(len, gradients))])
    return same_on_all_ranks(counts) and same_on_all_ranks(torch.cat([g.double() for g in gradients]))


def parts() -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Six steps: this rank's batch, and the batch of all ranks."""
    for inputs, targets in batches(6):
        yield mine(inputs), mine(targets), inputs, targets


def case_clipping() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def case_clipping_of_accumulated_gradients() -> None:
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=3)
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        for part in range(3):
            rows = slice(2 * part, 2 * part + 2)
            (loss_of(model, inputs[rows], targets[rows]) / 3).backward()
        assert averaged(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def case_a_step_with_fewer_backward_passes() -> None:
    """The optimizer cannot know that no other pass follows. What is changed too early is refused."""
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=3)
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        for part in range(2):
            rows = slice(3 * part, 3 * part + 3)
            (loss_of(model, inputs[rows], targets[rows]) / 2).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))
    if hvd.size() > 1:
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with raises(AssertionError, "after 1 of 3 backward passes", "before they were averaged"):
            optimizer.step()
        optimizer.synchronize()
        optimizer.zero_grad()


def case_a_step_that_all_ranks_skip() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for step, (inputs, targets, *_) in enumerate(parts()):
        for skipped in (True, False):
            factor = float("inf") if skipped and hvd.rank() == step % hvd.size() else 1.0
            (loss_of(model, inputs, targets) * factor).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            assert bool(norm.isfinite()) is not skipped, "all ranks see what one of them has computed"
            if not skipped:
                optimizer.step()
            optimizer.zero_grad()
    check(model, train_alone(make_sgd))


def case_gradient_scaler() -> None:
    for zero_grad in ("optimizer", "model"):
        model = make_model()
        optimizer = wrapped(model)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
        for inputs, targets, *_ in parts():
            for infinite in (True, False):
                (optimizer if zero_grad == "optimizer" else model).zero_grad()
                loss = loss_of(model, inputs, targets)
                if infinite and hvd.rank() == 0:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    scaler.step(optimizer)
                scaler.update()
        assert scaler.get_scale() == 16.0
        check(model, train_alone(make_sgd, clip=0.1))


def case_skipped_steps_and_zero_grad_of_the_model() -> None:
    """The optimizer has to notice that a step begins."""
    for op in (hvd.Average, hvd.Sum):
        model = make_model()
        optimizer = wrapped(model, op=op, backward_passes_per_step=2)
        share = 2 * (hvd.size() if op == hvd.Sum else 1)
        for inputs, targets, *_ in parts():
            for skipped in (True, False):
                for _ in range(2):
                    (loss_of(model, inputs, targets) / share).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                if not skipped:
                    optimizer.step()
                model.zero_grad()
        check(model, train_alone(make_sgd, clip=0.1))


def case_a_backward_pass_for_parameters_that_were_frozen_or_added() -> None:
    """The first gradients of some are the only ones of their step."""
    model, single = make_model(), make_model()
    for each in (model, single):
        each[:4].requires_grad_(False)
    trained = [each[2:].parameters() for each in (model, single)]
    optimizer, alone = hvd.DistributedOptimizer(make_sgd(trained[0])), make_sgd(trained[1])
    for step, (inputs, targets, *joined) in enumerate(parts()):
        for each, stepping, x, y in ((model, optimizer, inputs, targets), (single, alone, *joined)):
            if step == 2:
                each[4].requires_grad_(False)
                each[2].requires_grad_(True)
            if step == 4:
                each[2].requires_grad_(False)
                each[0].requires_grad_(True)
                stepping.add_param_group({"params": list(each[0].parameters())})
            stepping.zero_grad()
            loss_of(each, x, y).backward()
            nn.utils.clip_grad_norm_(each.parameters(), 0.1)
            stepping.step()
    check(model, weights(single))


class Branches(nn.Module):
    """Each rank uses another branch, and no rank the last one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.ways = nn.ModuleList(nn.Linear(4, 3) for _ in range(hvd.size() + 1)).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.ways[hvd.rank()](inputs)
        return result


def case_parameters_that_some_ranks_do_not_use() -> None:
    for op in (hvd.Average, hvd.Sum):
        model = Branches()
        optimizer = wrapped(model, op=op)
        for inputs, targets, *_ in parts():
            optimizer.zero_grad()
            weight = model.ways[hvd.rank()].weight
            (wanted,) = torch.autograd.grad(loss_of(model, inputs, targets), weight)
            loss_of(model, inputs, targets).backward()
            assert averaged(model)
            torch.testing.assert_close(weight.grad, wanted / (hvd.size() if op == hvd.Average else 1))
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        check(model)


def case_clipping_where_some_ranks_have_no_loss() -> None:
    for passes in (1, 2):
        model = make_model()
        optimizer = wrapped(model, backward_passes_per_step=passes)
        for step, (inputs, targets, *_) in enumerate(parts()):
            optimizer.zero_grad()
            for number in range(passes):
                if hvd.rank() == 0 or (step + number) % 2:
                    loss_of(model, inputs, targets).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        check(model)


def case_two_losses_of_different_parts() -> None:
    """The optimizer cannot foresee the second one."""
    for op in (hvd.Average, hvd.Sum):
        one, other = make_model(), make_model()
        model, single = nn.ModuleList([one, other]), nn.ModuleList([make_model(), make_model()])
        optimizer, alone = wrapped(model, op=op), make_sgd(single.parameters())
        share = hvd.size() if op == hvd.Sum else 1
        for step, (inputs, targets, *joined) in enumerate(parts()):
            optimizer.zero_grad()
            alone.zero_grad()
            for part in (0, 1) if step % 2 else (1, 0):
                (loss_of(model[part], inputs, targets) * (part + 1) / share).backward()
                assert averaged(model[part])
                (loss_of(single[part], *joined) * (part + 1)).backward()
            for each in (model, single):
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
            optimizer.step()
            alone.step()
        check(model, weights(single))


def case_two_losses_with_a_common_part() -> None:
    for op in (hvd.Average, hvd.Sum):
        model, single = make_model(), make_model()
        optimizer, alone = wrapped(model, op=op, backward_passes_per_step=2), make_sgd(single.parameters())
        share = hvd.size() if op == hvd.Sum else 1
        for inputs, targets, *joined in parts():
            optimizer.zero_grad()
            alone.zero_grad()
            for each, x, y, divisor in ((model, inputs, targets, share), (single, *joined, 1)):
                (loss_of(each[:3], x, x.new_ones(len(x), 8)) / divisor).backward()
                (loss_of(each, x, y) / divisor).backward()
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
            optimizer.step()
            alone.step()
        check(model, weights(single))


def case_accumulation_of_two_losses() -> None:
    """More backward passes than `backward_passes_per_step`, but not for a single parameter."""
    for op in (hvd.Average, hvd.Sum):
        model, single = (
            nn.ModuleList([make_model(), make_model()]),
            nn.ModuleList([make_model(), make_model()]),
        )
        optimizer, alone = wrapped(model, op=op, backward_passes_per_step=2), make_sgd(single.parameters())
        share = hvd.size() if op == hvd.Sum else 1
        for inputs, targets, *joined in parts():
            optimizer.zero_grad()
            alone.zero_grad()
            for each, x, y, divisor in ((model, inputs, targets, share), (single, *joined, 1)):
                for _ in range(2):
                    for part in each:
                        (loss_of(part, x, y) / divisor).backward()
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
            optimizer.step()
            alone.step()
        check(model, weights(single))


def case_late_gradients_that_differ_between_ranks() -> None:
    if hvd.size() == 1:
        return
    model = nn.ModuleList(make_model() for _ in range(3))
    optimizer = wrapped(model)
    inputs, targets = next(batches(1))
    loss_of(model[0], inputs, targets).backward()
    with raises(hvd.CollectiveError, "late gradients", "disagree on gradients", "rank 1: ['2.0.bias'"):
        loss_of(model[1 if hvd.rank() == 0 else 2], inputs, targets).backward()
    del optimizer


def case_several_optimizers_in_any_order() -> None:
    """One backward pass for several models; the order of their gradients, and who has any, depend on the rank."""
    models = [make_model() for _ in range(3)]
    optimizers = [wrapped(model) for model in models]
    for step, (inputs, targets, *_) in enumerate(parts()):
        order = [(number + hvd.rank()) % 3 for number in range(3)]
        used = [number for number in order if (number + hvd.rank() + step) % 3 or number == 0]
        loss = torch.zeros((), dtype=torch.float64)
        for number in used:
            loss = loss + loss_of(models[number], inputs + 0 * loss, targets)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in reversed(optimizers):
            optimizer.step()
    for model in models:
        check(model)
    assert not torch.equal(weights(models[1]), weights(make_model()))


def case_the_optimizers_of_two_models() -> None:
    """Each is clipped and stepped after its own backward pass."""
    models, singles = [make_model(), make_model()], [make_model(), make_model()]
    optimizers, alone = [wrapped(each) for each in models], [make_sgd(each.parameters()) for each in singles]
    for inputs, targets, *joined in parts():
        for model, single, optimizer, other in zip(models, singles, optimizers, alone, strict=True):
            for each, x, y, stepping in ((model, inputs, targets, optimizer), (single, *joined, other)):
                stepping.zero_grad()
                loss_of(each, x, y).backward()
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
                stepping.step()
    for model, single in zip(models, singles, strict=True):
        check(model, weights(single))


def case_two_optimizers_of_the_same_parameters() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    unused = wrapped(model)
    optimizer = wrapped(model)
    inputs, targets = next(batches(1))
    with raises(ValueError, "two optimizers average the gradient of 0.weight"):
        loss_of(model, inputs, targets).backward()
    del unused
    optimizer.synchronize()
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def checkpointed(model: nn.Sequential, inputs: torch.Tensor, kind: str) -> torch.Tensor:
    inputs = inputs.clone().requires_grad_()
    if kind == "nested":
        return checkpoint(
            lambda x: model[4](checkpoint(model[:4], x, use_reentrant=True)), inputs, use_reentrant=True
        )
    for layers in (model[:2], model[2:4], model[4:]):
        inputs = checkpoint(layers, inputs, use_reentrant=kind == "reentrant")
    return inputs


def case_activation_checkpointing() -> None:
    for kind in ("reentrant", "nested", "not reentrant"):
        model = make_model()
        optimizer = wrapped(model)
        for inputs, targets, *_ in parts():
            optimizer.zero_grad()
            nn.functional.mse_loss(checkpointed(model, inputs, kind), targets).backward()
            assert averaged(model)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        check(model, train_alone(make_sgd, clip=0.1))


def case_compiled_model() -> None:
    model = make_model()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = wrapped(model)
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        loss_of(compiled, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def case_a_backward_pass_that_fails() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for inputs, targets, *_ in parts():
        failing = model[0].weight.register_hook(_fail)
        with raises(MemoryError):
            loss_of(model, inputs, targets).backward()
        failing.remove()
        optimizer.synchronize()
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
        optimizer.zero_grad()
    check(model, train_alone(make_sgd, clip=0.1))


def _fail(_: torch.Tensor) -> None:
    raise MemoryError


def case_retained_graphs_and_plain_gradients() -> None:
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for inputs, targets, *_ in parts():
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets) / 2
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward(retain_graph=True)
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    check(model, train_alone(make_sgd, clip=0.1))


def case_synchronizing_as_often_as_you_like() -> None:
    for op in (hvd.Average, hvd.Sum):
        model = make_model()
        optimizer = wrapped(model, op=op)
        for inputs, targets, *_ in parts():
            optimizer.zero_grad()
            (loss_of(model, inputs, targets) / (hvd.size() if op == hvd.Sum else 1)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            for _ in range(3):
                optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        check(model, train_alone(make_sgd, clip=0.1))


def case_gradients_that_are_differentiated() -> None:
    """With ``create_graph=True``, the gradients of a first pass are part of the loss of the second one."""
    for passes in (1, 2):
        model, single = make_model(), make_model()
        optimizer, alone = wrapped(model, backward_passes_per_step=passes), make_sgd(single.parameters())
        for inputs, targets, *joined in parts():
            optimizer.zero_grad()
            alone.zero_grad()
            loss_of(model, inputs, targets).backward(create_graph=True)
            if passes == 2:
                penalty = sum(p.grad.square().sum() for p in model.parameters())
                penalty.backward()
            for rank in range(hvd.size()):
                own = [mine(each, rank) for each in joined]
                gradients = torch.autograd.grad(
                    loss_of(single, *own), list(single.parameters()), create_graph=True
                )
                if passes == 2:
                    penalty = sum(g.square().sum() for g in gradients)
                    (penalty / hvd.size()).backward()
                for p, g in zip(single.parameters(), gradients, strict=True):
                    p.grad = g.detach() / hvd.size() + (0 if p.grad is None else p.grad)
            optimizer.step()
            alone.step()
        check(model, weights(single))


def case_zero_grad_of_the_model_in_an_unfinished_step() -> None:
    """All passes count, also those whose gradients were dropped, and on some ranks only."""
    for zeroed in range(hvd.size() + 1):
        model, single = make_model(), make_model()
        optimizer, alone = wrapped(model, backward_passes_per_step=3), make_sgd(single.parameters())
        for inputs, targets, *joined in parts():
            loss_of(model, 7 * inputs, targets).backward()
            if hvd.rank() != zeroed:
                model.zero_grad(set_to_none=hvd.rank() == 0)
            for rank in range(hvd.size()):
                if rank == zeroed:
                    own = [mine(each, rank) for each in joined]
                    (loss_of(single, 7 * own[0], own[1]) / hvd.size()).backward()
            for factor in (1, 2):
                loss_of(model, factor * inputs, targets).backward()
                loss_of(single, factor * joined[0], joined[1]).backward()
            for each in (optimizer, alone):
                each.step()
                each.zero_grad()
        check(model, weights(single))


def case_a_step_skipped_by_zeros() -> None:
    """The optimizer cannot see that the gradients are dropped: an error says so, with what to do."""
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = wrapped(model)
    inputs, targets, *_ = next(parts())
    loss_of(model, inputs, targets).backward()
    model.zero_grad(set_to_none=False)
    with raises(AssertionError, "call optimizer.synchronize() on all ranks", "set_to_none=False"):
        loss_of(model, inputs, targets).backward()
    del optimizer


def case_a_parameter_frozen_on_one_rank() -> None:
    if hvd.size() == 1:
        return
    for sparse in (False, True):
        torch.manual_seed(1)
        model: Any = nn.Embedding(3, 2, sparse=sparse).double()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        head = nn.Parameter(torch.ones(2, dtype=torch.float64))
        optimizer.add_param_group({"params": [head]})
        for step in range(2):
            frozen = step == 1 and hvd.rank() == 1
            model.weight.requires_grad_(not frozen)
            optimizer.zero_grad()
            with raises(AssertionError, "weight is frozen on this rank") if frozen else nullcontext():
                (model(torch.tensor([0, 1])) * head).sum().backward()
        del optimizer


def case_two_threads() -> None:
    if hvd.size() == 1:
        return
    models = [make_model(), make_model()]
    optimizers = [wrapped(each) for each in models]
    inputs, targets, *_ = next(parts())

    def step(number: int) -> None:
        optimizers[number].zero_grad()
        loss_of(models[number], inputs, targets).backward()
        optimizers[number].step()

    step(0)
    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):  # the second model is trained after the first one
            thread.submit(step, 1).result()
        step(1)
        with raises(ValueError, "at the same time in different threads"):
            thread.submit(step, 0).result()
    for model in models:
        check(model)


def case_sparse_gradients() -> None:
    torch.manual_seed(1)
    model = nn.ModuleList([nn.Embedding(10, 3, sparse=True), nn.Embedding(10, 3, sparse=True)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for _ in range(3):
        optimizer.zero_grad()
        for part in model:
            part(torch.tensor([1, 2 + hvd.rank()])).square().sum().backward()
        assert averaged(model)
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
        optimizer.step()
    check(model)


def case_ranks_of_a_process_set() -> None:
    if hvd.size() == 1:
        return
    process_set = hvd.add_process_set([0] if hvd.size() == 2 else [0, 2])
    model = make_model()
    optimizer = wrapped(model, process_set=process_set)
    inputs, targets = next(batches(1))
    loss_of(model, mine(inputs), mine(targets)).backward()
    own = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    norms = hvd.allgather(own[None])
    optimizer.step()
    if hvd.size() == 3:
        assert norms[0] == norms[2] != norms[1]
    hvd.remove_process_set(process_set)


def case_optimizers_of_different_process_sets_in_one_backward_pass() -> None:
    """The ranks of both reduce their gradients in the same order."""
    if hvd.size() < 3:
        return
    process_set = hvd.add_process_set([0, 1])
    inputs, targets = next(batches(1))
    for _ in range(8):  # the order was that of addresses in memory
        models = [make_model(), make_model()]
        optimizers = [wrapped(models[0]), wrapped(models[1], process_set=process_set)]
        loss: Any = 0.0
        for each in models if hvd.rank() == 0 else models[::-1]:
            loss = loss + loss_of(each, mine(inputs), mine(targets))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        check(models[0])
    hvd.remove_process_set(process_set)


def case_a_rank_with_more_batches() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for step, (inputs, targets, *_) in enumerate(parts()):
        if step >= 3 and hvd.rank() > 0:
            break
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    assert hvd.join() == 0
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    check(model)


if __name__ == "__main__":
    run(globals())
