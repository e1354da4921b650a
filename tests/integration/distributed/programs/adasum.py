"""Adasum of tensors and of optimizer steps, compared with its definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from _cases import DEVICE, array, raises, run, same_on_all_ranks, seeded
from _training import BATCH, MakeOptimizer, batches, check, loss_of, make_model, make_sgd, mine
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _adasum

SHAPES = [(5,), (3, 4), (), (0, 2), (1,), (2, 1, 7)]
DTYPES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-14}
"""Types, each with a tolerance of a few roundings, one per level of the tree."""


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maleki et al. 2020, equation 5."""
    dot, square_a, square_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    factor_a = 1 - dot / (2 * square_a) if square_a else 1
    factor_b = 1 - dot / (2 * square_b) if square_b else 1
    return factor_a * a + factor_b * b


def tree(vectors: list[np.ndarray]) -> np.ndarray:
    """Pairs neighbours; ranks beyond the largest power of two are combined first."""
    power = 1 << (len(vectors).bit_length() - 1)
    for number, vector in enumerate(vectors[power:]):
        vectors[number] = pair(vectors[number], vector)
    vectors = vectors[:power]
    while len(vectors) > 1:
        vectors = [pair(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def vectors_of(rank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Partly the same on all ranks, as gradients are; one is zero on rank 1, one on all ranks."""
    shared, own = seeded(99), seeded(rank)
    tensors = [torch.randn(shape, generator=shared) + torch.randn(shape, generator=own) for shape in SHAPES]
    if rank == 1:
        tensors[0].zero_()
    tensors[4].zero_()
    return [tensor.to(dtype) for tensor in tensors]


def wanted(ranks: Sequence[int], dtype: torch.dtype) -> list[np.ndarray]:
    columns = zip(*(vectors_of(rank, dtype) for rank in ranks), strict=True)
    return [tree([array(tensor.double()) for tensor in column]) for column in columns]


def adasum_(tensors: Sequence[torch.Tensor]) -> None:
    _adasum.adasum_(tensors, dist.group.WORLD, range(hvd.size()))


def case_follows_its_definition_for_each_tensor() -> None:
    for dtype, tolerance in DTYPES.items():
        tensors = vectors_of(hvd.rank(), dtype)
        adasum_(tensors)
        for tensor, reference in zip(tensors, wanted(range(hvd.size()), dtype), strict=True):
            assert tensor.dtype == dtype
            np.testing.assert_allclose(array(tensor.double()), reference, rtol=tolerance, atol=tolerance)
            assert same_on_all_ranks(tensor)


def case_a_single_tensor() -> None:
    for number in range(len(SHAPES)):
        tensor = vectors_of(hvd.rank(), torch.float64)[number]
        adasum_([tensor])
        reference = wanted(range(hvd.size()), torch.float64)[number]
        np.testing.assert_allclose(array(tensor), reference, rtol=1e-13, atol=1e-13)


def case_tensors_that_are_not_contiguous() -> None:
    tensor = vectors_of(hvd.rank(), torch.float64)[1]
    transposed, strided = tensor.clone().t(), torch.zeros(6, 4, dtype=torch.float64)[::2]
    strided.copy_(tensor)
    adasum_([transposed])
    adasum_([strided])
    reference = wanted(range(hvd.size()), torch.float64)[1]
    np.testing.assert_allclose(array(transposed.t()), reference, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(array(strided), reference, rtol=1e-13, atol=1e-13)


def case_parallel_vectors_are_averaged_and_orthogonal_ones_added() -> None:
    parallel, orthogonal = torch.ones(7), torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 3.0
    adasum_([parallel, orthogonal])
    torch.testing.assert_close(parallel, torch.ones(7))
    torch.testing.assert_close(orthogonal, torch.full((hvd.size(),), 3.0))


def case_vectors_of_many_chunks() -> None:
    length = 2 * _adasum._CHUNK + 3
    columns = torch.arange(length, dtype=torch.float64)
    members = [torch.sin(columns * (rank + 1)) + 1 for rank in range(hvd.size())]
    tensors = [members[hvd.rank()].clone(), members[hvd.rank()][:9].clone()]
    adasum_(tensors)
    np.testing.assert_allclose(array(tensors[0]), tree([array(each) for each in members]), rtol=1e-12)
    np.testing.assert_allclose(array(tensors[1]), tree([array(each[:9]) for each in members]), rtol=1e-12)


def case_lengths_that_single_precision_cannot_square() -> None:
    tensor = torch.full((3,), 1e-30 if hvd.rank() == 0 else 1e30)
    adasum_([tensor])
    reference = tree([np.full(3, float(np.float32(1e-30 if n == 0 else 1e30))) for n in range(hvd.size())])
    np.testing.assert_allclose(array(tensor), reference, rtol=1e-6)


def case_numbers_that_are_not_floating_point() -> None:
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with raises(ValueError, "Adasum needs floating-point numbers", str(dtype)):
            adasum_([torch.ones(3), torch.ones(3, dtype=dtype)])


def case_allreduce() -> None:
    tensors = vectors_of(hvd.rank(), torch.float64)
    references = wanted(range(hvd.size()), torch.float64)
    handle = hvd.grouped_allreduce_async(tensors, op=hvd.Adasum)
    for result, reference in zip(hvd.synchronize(handle), references, strict=True):
        np.testing.assert_allclose(array(result), reference, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(array(hvd.allreduce(tensors[1], op=hvd.Adasum)), references[1], rtol=1e-12)


def train_alone(make_optimizer: MakeOptimizer, ranks: Sequence[int], steps: int) -> nn.Module:
    """The combined steps of all ``ranks``, computed in this process."""
    models = [make_model() for _ in ranks]
    optimizers = [make_optimizer(model.parameters()) for model in models]
    for inputs, targets in batches(steps):
        starts = [parameter.detach().clone() for parameter in models[0].parameters()]
        for rank, model, optimizer in zip(ranks, models, optimizers, strict=True):
            rows = slice(BATCH * rank, BATCH * (rank + 1))
            optimizer.zero_grad()
            loss_of(model, inputs[rows], targets[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            for start, *parameters in zip(starts, *(model.parameters() for model in models), strict=True):
                delta = torch.from_numpy(tree([array(p - start) for p in parameters])).to(DEVICE)
                for parameter in parameters:
                    parameter.copy_(start + delta)
    return models[0]


def train(make_optimizer: MakeOptimizer, steps: int, **arguments: Any) -> nn.Module:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(model.parameters()), model.named_parameters(), op=hvd.Adasum, **arguments
    )
    for inputs, targets in batches(steps):
        optimizer.zero_grad()
        loss_of(model, mine(inputs), mine(targets)).backward()
        optimizer.step()
    return model


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def case_optimizer() -> None:
    optimizers: tuple[Callable[..., torch.optim.Optimizer], ...] = (
        make_sgd,
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    )
    for make_optimizer in optimizers:
        check(train(make_optimizer, 6), vector(train_alone(make_optimizer, range(hvd.size()), 6)))


def case_optimizer_with_compression() -> None:
    model = train(make_sgd, 6, compression=hvd.Compression.fp16)
    check(model)
    reference = train_alone(make_sgd, range(hvd.size()), 6)
    torch.testing.assert_close(vector(model), vector(reference), rtol=2e-3, atol=2e-3)


def case_optimizer_of_a_process_set() -> None:
    if hvd.size() < 3:
        return
    process_set = hvd.add_process_set([0, 2])
    ranks = [0, 2] if process_set.included() else [hvd.rank()]
    model = train(make_sgd, 6, process_set=process_set)
    torch.testing.assert_close(vector(model), vector(train_alone(make_sgd, ranks, 6)))
    hvd.remove_process_set(process_set)


def case_optimizer_of_several_passes_and_types() -> None:
    model = nn.Sequential(nn.Linear(4, 8).bfloat16(), nn.Linear(8, 3).bfloat16().float())
    model[1].bias.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        make_sgd(model.parameters()), op=hvd.Adasum, backward_passes_per_step=2
    )
    optimizer.set_backward_passes_per_step(3)
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        for _ in range(3):
            output = model[1](model[0](mine(inputs).bfloat16()).float())
            nn.functional.mse_loss(output, mine(targets).float()).backward()
        optimizer.step()
    check(model)


def case_optimizer_of_parameters_that_one_rank_freezes() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), op=hvd.Adasum)
    for number, (inputs, targets) in enumerate(batches(3)):
        frozen = next(iter(model.parameters()))
        before = frozen.detach().clone()
        if number == 1 and hvd.rank() == 0:
            frozen.requires_grad_(False)
        if number == 2:
            frozen.requires_grad_(False)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(mine(inputs)), mine(targets)).backward()
        optimizer.step()
        check(model)
        # the others' change, until the last rank has frozen it
        changes = number == 0 or (number == 1 and hvd.size() > 1)
        assert torch.equal(before, frozen) != changes


def case_invalid_optimizer_arguments() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model.parameters()), op=hvd.Adasum)
    optimizer.synchronize()
    with raises(AssertionError, "not supported when using Adasum"), optimizer.skip_synchronize():
        pass
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(torch.ones(1))
    with raises(ValueError, "GradScaler does not work with op=Adasum", "bfloat16"):
        scaler.step(optimizer)
    with raises(ValueError, "already"):
        hvd.DistributedOptimizer(optimizer)
    with raises(ValueError, "gradient_predivide_factor"):
        hvd.DistributedOptimizer(make_sgd(model.parameters()), op=hvd.Adasum, gradient_predivide_factor=2.0)


if __name__ == "__main__":
    run(globals())
