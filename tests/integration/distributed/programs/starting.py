"""broadcast_parameters and broadcast_optimizer_state: every rank starts with the root's values."""

from __future__ import annotations

import copy

import torch
from _cases import raises, run
from _training import MakeOptimizer, batches, check, loss_of, make_model, make_sgd, mine, weights
from torch import nn

import cloudtrain.distributed.torch as hvd


def own_model() -> nn.Module:
    """Different weights on each rank."""
    model = make_model()
    for parameter in model.parameters():
        parameter.data += hvd.rank()
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for inputs, targets in batches(steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, mine(inputs), mine(targets))  # noqa: B023
            loss.backward()
            return loss

        optimizer.step(closure)


def case_parameters_in_every_form() -> None:
    root = hvd.size() - 1
    forms = [
        lambda model: model.state_dict(),
        lambda model: model.named_parameters(),
        lambda model: list(model.named_parameters()),
        lambda model: model.parameters(),
    ]
    for form in forms:
        model = own_model()
        wanted = weights(make_model()) + root
        hvd.broadcast_parameters(form(model), root_rank=root)
        assert torch.equal(weights(model), wanted)


def case_buffers() -> None:
    model = nn.BatchNorm1d(3)
    model.running_mean += hvd.rank()
    model.num_batches_tracked += hvd.rank()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert model.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert model.num_batches_tracked.item() == 0


def case_not_a_tensor() -> None:
    with raises(ValueError, "epoch is a int", "broadcast_object"):
        hvd.broadcast_parameters({"epoch": 3}, root_rank=0)


def state_with(make_optimizer: MakeOptimizer, trained: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    if trained:
        train(model, optimizer)
    return model, optimizer


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": make_sgd,
    "SGD without state": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "Adam, tensor lr": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.01), foreach=False),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def case_state_that_only_the_root_has() -> None:
    for name, make_optimizer in OPTIMIZERS.items():
        for root_has_it in (True, False):
            _, optimizer = state_with(make_optimizer, trained=(hvd.rank() == 0) == root_has_it)
            wanted = hvd.broadcast_object(optimizer.state_dict(), 0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            assert same(optimizer.state_dict(), wanted), name


def case_state_that_differs_between_ranks() -> None:
    with raises(ValueError, "cannot broadcast torch.optim.LBFGS state"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(make_model().parameters()), root_rank=0)


def case_scalars() -> None:
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 + hvd.rank(), betas=(0.5 / (1 + hvd.rank()), 0.9))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.1, (0.5, 0.9))


def case_resuming_as_if_never_stopped() -> None:
    model, optimizer = state_with(make_sgd, trained=False)
    distributed = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    train(model, distributed, steps=6)
    kept = copy.deepcopy((model.state_dict(), distributed.state_dict()))
    resumed = own_model()
    again = hvd.DistributedOptimizer(make_sgd(resumed.parameters()), resumed.named_parameters())
    if hvd.rank() == 0:
        resumed.load_state_dict(kept[0])
        again.load_state_dict(kept[1])
    hvd.broadcast_parameters(resumed.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(again, root_rank=0)
    train(model, distributed)
    train(resumed, again)
    check(resumed, weights(model))


if __name__ == "__main__":
    run(globals())
