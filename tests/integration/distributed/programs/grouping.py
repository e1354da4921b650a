"""Groups of gradients that are reduced together, and process sets of optimizers."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from _cases import raises, run
from _training import BATCH, batches, check, loss_of, make_model, make_sgd, mine, train_alone, weights
from torch import nn

import cloudtrain.distributed.torch as hvd


def train(model: nn.Module, **arguments: Any) -> None:
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), model.named_parameters(), **arguments)
    for inputs, targets in batches(6):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()


def together(model: nn.Module) -> set[frozenset[str]]:
    """The names of parameters whose gradients share a buffer."""
    buffers: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters():
        buffers.setdefault(parameter.grad.untyped_storage().data_ptr(), set()).add(name)
    return set(map(frozenset, buffers.values()))


def case_numbers_of_groups() -> None:
    names = [name for name, _ in make_model().named_parameters()]
    for groups, shares in (
        (0, [names]),
        (1, [names]),
        (2, [names[:3], names[3:]]),
        (4, [names[:2], names[2:3], names[3:5], names[5:]]),
        (6, [[name] for name in names]),
        (100, [[name] for name in names]),
    ):
        model = make_model()
        train(model, groups=groups)
        check(model, train_alone(make_sgd))
        if hvd.size() > 1:
            assert together(model) == set(map(frozenset, shares)), groups


def case_lists_of_parameters() -> None:
    model = make_model()
    groups = [[model[0].weight, model[4].bias], [model[2].weight, torch.ones(1)], []]
    train(model, groups=groups)
    check(model, train_alone(make_sgd))
    if hvd.size() > 1:
        rest = {"0.bias", "2.bias", "4.weight"}
        listed = [{"0.weight", "4.bias"}, {"2.weight"}, rest]
        assert together(model) == set(map(frozenset, listed))


def case_groups_with_every_other_argument() -> None:
    for arguments, tolerance in (
        ({"compression": hvd.Compression.fp16}, 2e-3),
        ({"op": hvd.Sum}, 1e-9),
        ({"gradient_predivide_factor": 2.0}, 1e-9),
        ({"backward_passes_per_step": 2}, 1e-9),
    ):
        one, other = make_model(), make_model()
        train(one, groups=3, **arguments)
        train(other, **arguments)
        check(one)
        torch.testing.assert_close(weights(one), weights(other), rtol=tolerance, atol=tolerance)


def case_groups_of_several_types_and_of_parameters_added_later() -> None:
    torch.manual_seed(2)
    half, full = nn.Linear(4, 4).bfloat16(), nn.Linear(4, 3)
    model = nn.ModuleList([half, full])
    full.bias.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        make_sgd(model.parameters()), groups=[[half.weight, full.weight, full.bias], [half.bias]]
    )
    for step, (inputs, targets) in enumerate(batches(4)):
        full.bias.requires_grad_(step > 1)
        optimizer.zero_grad()
        output = full(half(mine(inputs).bfloat16()).float())
        nn.functional.mse_loss(output, mine(targets).float()).backward()
        optimizer.step()
    check(model)


def case_the_deprecated_number() -> None:
    model = make_model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model, num_groups=2)
    assert [each.category for each in caught] == [DeprecationWarning]
    check(model, train_alone(make_sgd))
    if hvd.size() > 1:
        assert len(together(model)) == 2


def case_wrong_groups() -> None:
    model = make_model()
    sgd = make_sgd(model.parameters())
    for groups, words in (
        (-1, "groups should be a non-negative integer"),
        ([["0.weight"]], "groups must consist of torch.Tensor"),
        ([[model[0].weight], [model[0].weight]], "A parameter can only appear once in groups"),
    ):
        with raises(ValueError, words):
            hvd.DistributedOptimizer(sgd, model.named_parameters(), groups=groups)


def case_process_sets() -> None:
    if hvd.size() < 3:
        return
    process_set = hvd.add_process_set([0, 2])
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        make_sgd(model.parameters()), model.named_parameters(), process_set=process_set
    )
    single = make_model()
    alone = make_sgd(single.parameters())
    for inputs, targets in batches(6):
        used = [0, 2] if process_set.included() else [hvd.rank()]
        rows = [row for rank in used for row in range(BATCH * rank, BATCH * (rank + 1))]
        for each, stepping, x, y in (
            (model, optimizer, mine(inputs), mine(targets)),
            (single, alone, inputs[rows], targets[rows]),
        ):
            stepping.zero_grad()
            loss_of(each, x, y).backward()
            stepping.step()
    torch.testing.assert_close(weights(model), weights(single), rtol=1e-9, atol=1e-10)
    hvd.remove_process_set(process_set)


if __name__ == "__main__":
    run(globals())
