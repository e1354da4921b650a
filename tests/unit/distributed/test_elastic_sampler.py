"""A rank's share of an epoch of which part was processed, by any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed import InvalidArgument
from cloudtrain.distributed.torch import _state, elastic
from cloudtrain.distributed.torch.elastic import ElasticSampler


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def as_rank(sampler: ElasticSampler, rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rank's samples, if the sampler is in this state on all ranks."""
    with monkeypatch.context() as patch:
        patch.setattr(_state, "rank", lambda: rank)
        patch.setattr(_state, "size", lambda: size)
        own = ElasticSampler(sampler.dataset, sampler.shuffle, sampler.seed)
        own.load_state_dict(sampler.state_dict())
        assert len(own) == len(list(own))
        return list(own)


def test_every_sample_once_in_a_new_order_every_epoch() -> None:
    sampler = ElasticSampler(range(20), seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(20)) != first
    assert list(sampler) == first == list(ElasticSampler(range(20), seed=1))
    sampler.record_batch(0, 5)
    sampler.set_epoch(1)
    assert sampler.processed_num == 0
    assert sorted(sampler) == list(range(20))
    assert list(sampler) != first != list(ElasticSampler(range(20), seed=2))
    assert list(ElasticSampler(range(5), shuffle=False)) == [0, 1, 2, 3, 4]


def test_processed_samples_are_left_out_after_a_reset() -> None:
    sampler = ElasticSampler(range(10))
    order = list(sampler)
    for batch_idx, batch in enumerate(DataLoader(range(10), batch_size=3, sampler=sampler)):
        if batch_idx == 2:
            break
        sampler.record_batch(batch_idx, len(batch))
        assert sampler.processed_num == 3 * (batch_idx + 1)
    assert list(sampler) == order
    sampler.reset()
    assert sampler.processed_num == 6
    assert list(sampler) == order[6:]
    sampler.record_batch(0, 3)
    sampler.reset()
    assert list(sampler) == order[9:]
    sampler.record_batch(0, 3)
    sampler.reset()
    assert (list(sampler), len(sampler)) == ([], 0)
    sampler.set_epoch(1)
    assert len(sampler) == 10


@pytest.mark.parametrize(("processed", "size"), [(0, 1), (0, 3), (4, 3), (6, 4), (9, 4), (10, 2)])
def test_remaining_samples_are_divided_among_any_number_of_ranks(
    processed: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = ElasticSampler(range(10))
    order = list(sampler)
    sampler.record_batch(0, processed)
    parts = [as_rank(sampler, rank, size, monkeypatch) for rank in range(size)]
    assert {len(part) for part in parts} == {-(-(10 - processed) // size)}
    dealt = [parts[number % size][number // size] for number in range(10 - processed)]
    assert dealt == order[processed:]
    assert set().union(*parts) == set(order[processed:])


def test_a_record_covers_the_batches_of_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ElasticSampler(range(12))
    with monkeypatch.context() as patch:
        patch.setattr(_state, "size", lambda: 3)
        sampler = ElasticSampler(range(12))
        sampler.record_batch(0, 2)
    whole.load_state_dict(sampler.state_dict())
    assert len(whole) == 6
    taken = [
        index for rank in range(3) for index in as_rank(ElasticSampler(range(12)), rank, 3, monkeypatch)[:2]
    ]
    assert sorted([*taken, *whole]) == list(range(12))


def test_single_samples_are_merged_by_the_next_commit() -> None:
    sampler = ElasticSampler(range(6), shuffle=False)
    state = elastic.TorchState(sampler=sampler)
    sampler.record_indices([4, 1])
    state.commit()
    sampler.record_indices([2])
    state.restore()
    assert list(sampler) == [0, 2, 3, 5]


def test_state_of_another_dataset() -> None:
    with pytest.raises(InvalidArgument, match="of 4 samples, but the dataset has 5"):
        ElasticSampler(range(5)).load_state_dict(ElasticSampler(range(4)).state_dict())
