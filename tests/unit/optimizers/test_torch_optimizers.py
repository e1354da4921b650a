"""LARS and LAMB for torch, compared with the papers' formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from formulas import LAMB, LARS, RATES, after, gradients, lamb_step, lars_step, start
from torch.utils._python_dispatch import TorchDispatchMode

from cloudtrain.distributed import InvalidArgument
from cloudtrain.optimizers import torch as optimizers

LAMB_OPTIONS = {
    "betas": (LAMB["beta1"], LAMB["beta2"]),
    "eps": LAMB["eps"],
    "weight_decay": LAMB["weight_decay"],
}
CASES = [
    (optimizers.LARS, LARS, after(lars_step, LARS)),
    (optimizers.LAMB, LAMB_OPTIONS, after(lamb_step, LAMB)),
]
cases = pytest.mark.parametrize(("make", "options", "wanted"), CASES, ids=["lars", "lamb"])


def parameters(dtype: torch.dtype = torch.float64) -> dict[str, torch.nn.Parameter]:
    return {name: torch.nn.Parameter(torch.tensor(one, dtype=dtype)) for name, one in start().items()}


def train(optimizer: torch.optim.Optimizer, trained: dict[str, torch.nn.Parameter], steps: slice) -> None:
    for rate, given in list(zip(RATES, gradients(), strict=True))[steps]:
        optimizer.param_groups[0]["lr"] = rate
        for name, parameter in trained.items():
            parameter.grad = torch.tensor(given[name], dtype=parameter.dtype)
        optimizer.step()


@cases
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)]
)
def test_the_formula(make, options, wanted, dtype: torch.dtype, tolerance: float) -> None:
    trained = parameters(dtype)
    train(make(trained.values(), lr=1.0, **options), trained, slice(None))
    for name, parameter in trained.items():
        assert parameter.dtype == dtype
        found = parameter.detach().double().numpy()
        np.testing.assert_allclose(found, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


@cases
def test_a_loaded_state_continues(make, options, wanted) -> None:
    first = parameters()
    optimizer = make(first.values(), lr=1.0, **options)
    train(optimizer, first, slice(0, 2))
    second = {name: torch.nn.Parameter(one.detach().clone()) for name, one in first.items()}
    other = make(second.values(), lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    train(other, second, slice(2, None))
    for name, parameter in second.items():
        np.testing.assert_allclose(parameter.detach(), wanted[name], rtol=1e-12, atol=1e-12, err_msg=name)


@cases
def test_gradients_are_not_changed_and_missing_ones_are_skipped(make, options, wanted) -> None:
    with_gradient, without = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    with_gradient.grad = torch.full((2, 2), 3.0)
    make([with_gradient, without], lr=0.1, **options).step()
    assert with_gradient.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert without.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert with_gradient[0, 0] < 1


@cases
def test_a_step_never_reads_values_on_the_host(make, options, wanted) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2, device="meta"))  # has no values: reading one raises
    optimizer = make([weight], lr=0.1, **options)
    for _ in range(2):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    with pytest.raises(RuntimeError):
        bool(weight.sum() > 0)


class _Kernels(TorchDispatchMode):
    """Counts operations that start a kernel, or one for a list of tensors."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not function.is_view
        return function(*args, **kwargs or {})


@cases
def test_parameters_share_kernels(make, options, wanted) -> None:
    """Only the product with the ratio of a parameter needs one kernel for each."""
    kernels = {}
    for number in (2, 20):
        weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((3, 3), (3,)) for _ in range(number)]
        optimizer = make(weights, lr=0.1, **options)
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.ones_like(weight)
            with _Kernels() as counted:
                optimizer.step()
        kernels[number] = counted.count
    assert kernels[20] - kernels[2] == 20 - 2


@cases
def test_large_parameters_take_turns(make, options, wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same result, with less temporary memory."""
    results = []
    for limit in (1, 100, 1 << 20):
        monkeypatch.setattr(optimizers, "BATCH_BYTES", limit)
        torch.manual_seed(1)
        weights = [torch.nn.Parameter(torch.randn(3, 3)) for _ in range(5)]
        optimizer = make(weights, lr=0.1, **options)
        for weight in weights:
            weight.grad = torch.randn(3, 3)
        optimizer.step()
        results.append(torch.stack([weight.detach() for weight in weights]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@cases
def test_a_closure_returns_the_loss(make, options, wanted) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = make([weight], lr=0.1, **options)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert closure().item() < 4.0


@cases
def test_a_zero_gradient_and_half_precision_stay_finite(make, options, wanted) -> None:
    weight = torch.nn.Parameter(
        torch.full((100, 100), 100.0, dtype=torch.float16)
    )  # the square of the norm is 1e8
    optimizer = make([weight], lr=10.0)
    for gradient in (torch.zeros_like(weight), torch.full_like(weight, 100.0)):
        weight.grad = gradient
        optimizer.step()
        assert weight.isfinite().all()
    assert weight[0, 0] < 100


@pytest.mark.parametrize(
    ("make", "arguments", "word"),
    [
        (optimizers.LARS, {"lr": -1.0}, "lr"),
        (optimizers.LARS, {"lr": 1.0, "momentum": 1.0}, "momentum"),
        (optimizers.LARS, {"lr": 1.0, "weight_decay": float("nan")}, "weight_decay"),
        (optimizers.LAMB, {"betas": (0.9, 1.0)}, "beta2"),
        (optimizers.LAMB, {"eps": -1e-9}, "eps"),
    ],
)
def test_invalid_arguments(make, arguments: dict, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        make([torch.nn.Parameter(torch.ones(1))], **arguments)


@cases
def test_sparse_gradients_are_rejected(make, options, wanted) -> None:
    words = torch.nn.Embedding(3, 2, sparse=True)
    words(torch.tensor([1])).sum().backward()
    with pytest.raises(InvalidArgument, match="sparse=False"):
        make(words.parameters(), lr=1.0).step()
