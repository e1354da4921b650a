"""How parameters are laid into buckets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloudtrain.distributed import InvalidArgument
from cloudtrain.distributed.torch import _buckets
from cloudtrain.distributed.torch._buckets import Bucket, make_buckets

TYPES = [torch.float32, torch.float64, torch.bfloat16]
PARAMETERS = st.lists(
    st.tuples(st.lists(st.integers(0, 30), max_size=3), st.sampled_from(TYPES)), min_size=1, max_size=20
)


def made(specs: list[tuple[list[int], torch.dtype]], bucket_bytes: int) -> list[Bucket]:
    named = [(str(n), torch.zeros(shape, dtype=dtype)) for n, (shape, dtype) in enumerate(specs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_buckets, "BUCKET_BYTES", bucket_bytes)
        return make_buckets(named, 1, first_bytes=bucket_bytes // 4)


@given(PARAMETERS, st.sampled_from([1, 400, 4000, 100000]))
def test_every_parameter_has_a_place_of_its_own(
    specs: list[tuple[list[int], torch.dtype]], bucket_bytes: int
) -> None:
    buckets = made(specs, bucket_bytes)
    slots = [slot for bucket in buckets for slot in bucket.slots]
    assert sorted(int(slot.name) for slot in slots) == list(range(len(specs)))
    for bucket in buckets:
        assert bucket.missing == len(bucket.slots)
        assert len({slot.parameter.dtype for slot in bucket.slots}) == 1
        assert [int(slot.name) for slot in bucket.slots] == sorted(int(slot.name) for slot in bucket.slots)
        for slot in bucket.slots:
            assert slot.view.shape == slot.parameter.shape
            slot.view += 1
        assert bool((bucket.flat == 1).all()), "a gap, or an overlap"
        last = bucket.slots[-1].view
        before_last = (bucket.flat.numel() - last.numel()) * last.element_size()
        assert before_last <= bucket_bytes


def test_the_first_bucket_is_small() -> None:
    buckets = made([([100], torch.float32)] * 10, 1600)
    assert [len(bucket.slots) for bucket in buckets] == [1, 4, 4, 1]


def test_views_have_the_strides_of_their_parameter() -> None:
    parameters = [
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(4, 6).t(),
        torch.zeros(5, 1).expand(5, 4),
    ]
    views = [
        slot.view
        for bucket in make_buckets([(str(n), p) for n, p in enumerate(parameters)], 1, first_bytes=1 << 20)
        for slot in bucket.slots
    ]
    assert [view.stride() for view in views[:2]] == [p.stride() for p in parameters[:2]]
    assert views[2].is_contiguous(), "memory that overlaps cannot be kept"


@pytest.mark.parametrize(("factor", "stored"), [(1.0, 3.0), (0.5, 1.5)])
def test_a_gradient_is_moved_once_and_then_lives_in_its_bucket(factor: float, stored: float) -> None:
    parameter = torch.zeros(4, requires_grad=True)
    (bucket,) = make_buckets([("p", parameter)], 1, first_bytes=1)
    (slot,) = bucket.slots
    parameter.grad = torch.full((4,), 3.0)
    bucket.put(slot, factor)
    assert parameter.grad is slot.view
    assert bucket.flat.tolist() == [stored] * 4
    bucket.put(slot, factor)
    assert bucket.flat.tolist() == [stored * factor] * 4


def test_no_gradient_is_zero_and_a_frozen_parameter_gets_none() -> None:
    for trained in (True, False):
        parameter = torch.zeros(4, requires_grad=trained)
        (bucket,) = make_buckets([("p", parameter)], 1, first_bytes=1)
        bucket.flat.fill_(9.0)
        bucket.fill(bucket.slots[0], 1.0)
        assert bucket.flat.tolist() == [0.0] * 4
        assert (parameter.grad is bucket.slots[0].view) == trained
        assert bucket.missing == 0


def test_a_sparse_gradient_is_refused_by_name() -> None:
    parameter = torch.zeros(4, 2, requires_grad=True)
    (bucket,) = make_buckets([("embedding.weight", parameter)], 1, first_bytes=1)
    parameter.grad = torch.ones(4, 2).to_sparse()
    with pytest.raises(InvalidArgument, match=r"embedding\.weight is sparse"):
        bucket.put(bucket.slots[0], 1.0)
