"""Buckets of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cloudtrain.distributed.torch._gradients.buckets import Bucket, Slot, share_out

TYPES = [torch.float32, torch.float64, torch.bfloat16]
SHAPES = st.lists(st.integers(0, 30), max_size=3)
PARAMETERS = st.lists(
    st.tuples(SHAPES, st.sampled_from(TYPES), st.sampled_from([None, None, 0, 1])), min_size=1, max_size=20
)
Spec = tuple[list[int], torch.dtype, "int | None"]


def slot_of(parameter: Tensor, name: str = "p") -> Slot:
    return Slot(parameter, name, passes_left=1)


def made(specs: list[Spec], bucket_bytes: int) -> list[Bucket]:
    slots = [
        slot_of(torch.zeros(shape, dtype=dtype, requires_grad=True), str(number))
        for number, (shape, dtype, _) in enumerate(specs)
    ]
    groups = {
        slot.parameter: group for slot, (*_, group) in zip(slots, specs, strict=True) if group is not None
    }
    shares = share_out(slots, groups, first_bytes=bucket_bytes // 4, bucket_bytes=bucket_bytes)
    return [Bucket(share) for share in shares]


@given(PARAMETERS, st.sampled_from([4, 400, 4000, 100000]))
def test_every_parameter_has_its_own_place(specs: list[Spec], bucket_bytes: int) -> None:
    buckets = made(specs, bucket_bytes)
    slots = [slot for bucket in buckets for slot in bucket.slots]
    assert sorted(int(slot.name) for slot in slots) == list(range(len(specs)))
    full_at = [int(bucket.slots[-1].name) for bucket in buckets]
    assert full_at == sorted(full_at), "a bucket would wait for one that is full later"
    for bucket in buckets:
        assert bucket.missing == len(bucket.slots)
        numbers = [int(slot.name) for slot in bucket.slots]
        assert numbers == sorted(numbers)
        assert len({specs[number][1:] for number in numbers}) == 1, "one type and one group"
        sizes = [slot.parameter.numel() * slot.parameter.element_size() for slot in bucket.slots]
        if specs[numbers[0]][2] is None:
            assert sum(sizes[:-1]) < bucket_bytes
        bucket.fill(1.0)
        views = [slot.parameter.grad for slot in bucket.slots]
        for number, view in enumerate(views):
            assert view is not None
            view += number + 1
        for number, (slot, view) in enumerate(zip(bucket.slots, views, strict=True)):
            assert view is not None
            assert view.shape == slot.parameter.shape
            assert bool((view == number + 1).all()), "two parameters overlap"
        memory = {view.untyped_storage().data_ptr() for view in views if view is not None and view.numel()}
        assert len(memory) <= 1, "one buffer"


@given(PARAMETERS)
def test_a_group_is_reduced_together(specs: list[Spec]) -> None:
    for bucket in made(specs, 4):
        _, dtype, group = specs[int(bucket.slots[0].name)]
        if group is not None:
            members = [number for number, spec in enumerate(specs) if spec[1:] == (dtype, group)]
            assert [int(slot.name) for slot in bucket.slots] == members


def test_the_first_bucket_is_small() -> None:
    buckets = made([([100], torch.float32, None)] * 10, 1600)
    assert [len(bucket.slots) for bucket in buckets] == [1, 4, 4, 1]


@pytest.mark.parametrize(
    ("parameter", "strides"),
    [
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (torch.zeros(4, 6).t(), (1, 6)),
        (torch.zeros(5, 1).expand(5, 4), (4, 1)),
    ],
    ids=["channels last", "transposed", "overlapping memory is not kept"],
)
def test_strides_of_the_gradient(parameter: Tensor, strides: tuple[int, ...]) -> None:
    slot = slot_of(parameter)
    Bucket([slot]).fill(1.0)
    assert slot.view is not None
    assert slot.view.stride() == strides


@pytest.mark.parametrize(("factor", "stored"), [(1.0, 3.0), (0.5, 1.5)])
def test_a_gradient_is_copied_once_and_then_stays_in_its_bucket(factor: float, stored: float) -> None:
    parameter = torch.zeros(4, requires_grad=True)
    slot = slot_of(parameter)
    bucket = Bucket([slot])
    parameter.grad = torch.full((4,), 3.0)
    for times in (1, 2):
        bucket.fill(factor)
        assert parameter.grad is slot.view
        assert parameter.grad.tolist() == [stored * factor ** (times - 1)] * 4


class _Operations(TorchDispatchMode):
    """The operations that start a kernel, or one for a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not function.is_view:
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    ("factor", "wanted"),
    [(1.0, ["_foreach_copy_"]), (0.5, ["_foreach_copy_", "mul_"])],
    ids=["copied", "divided"],
)
def test_the_gradients_of_a_bucket_are_copied_together(factor: float, wanted: list[str]) -> None:
    slots = [slot_of(torch.zeros(5, requires_grad=True)) for _ in range(20)]
    bucket = Bucket(slots)
    for _ in range(2):
        for slot in slots:
            slot.parameter.grad = torch.ones(5)
        with _Operations() as operations:
            bucket.fill(factor)
    assert operations.names == wanted
    assert all(slot.parameter.grad is slot.view for slot in slots)
    assert all(slot.view.tolist() == [factor] * 5 for slot in slots if slot.view is not None)


@pytest.mark.parametrize("length", [5, 5000], ids=["small", "large"])
def test_gradients_that_are_in_place_missing_or_new(length: int) -> None:
    slots = [slot_of(torch.zeros(length, requires_grad=True)) for _ in range(3)]
    bucket = Bucket(slots)
    for slot in slots:
        slot.parameter.grad = torch.full((length,), 8.0)
    bucket.fill(0.5)
    slots[1].parameter.grad, slots[2].parameter.grad = None, torch.full((length,), 6.0)
    bucket.fill(0.5)
    values = [slot.view.unique().tolist() for slot in slots if slot.view is not None]
    assert values == [[2.0], [0.0], [3.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["same type", "other type"])
def test_a_gradient_with_other_memory_returns_to_its_bucket(dtype: torch.dtype) -> None:
    model = torch.nn.ParameterList([torch.zeros(4), torch.zeros(4)])
    slots = [slot_of(parameter) for parameter in model]
    bucket = Bucket(slots)
    for number, parameter in enumerate(model):
        parameter.grad = torch.full((4,), number + 1.0)
    bucket.fill(1.0)
    model.half().to(dtype)  # gives parameters and gradients other memory, but they are the same objects
    bucket.fill(0.5)
    views = [slot.view for slot in slots if slot.view is not None]
    assert [view.tolist() for view in views] == [[0.5] * 4, [1.0] * 4]
    assert len({view.untyped_storage().data_ptr() for view in views}) == 1, "not in the buffer"
    assert all(slot.parameter.grad is slot.view for slot in slots)
    assert {view.dtype for view in views} == {dtype}


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen"])
def test_a_missing_gradient_is_zero_and_a_frozen_parameter_gets_none(trained: bool) -> None:
    parameter = torch.zeros(4, requires_grad=trained)
    slot = slot_of(parameter)
    bucket = Bucket([slot])
    bucket.fill(1.0)
    assert slot.view is not None
    assert slot.view.tolist() == [0.0] * 4
    assert (parameter.grad is slot.view) == trained
