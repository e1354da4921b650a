"""Process sets, registered by init or later."""

from __future__ import annotations

import torch
from _cases import raises, run
from _training import batches, check, make_model, make_sgd, mine, weights
from torch import nn

import cloudtrain.distributed.torch as hvd


def each_alone() -> list[hvd.ProcessSet]:
    return [hvd.ProcessSet([rank]) for rank in range(hvd.size())]


def first_and_last() -> list[int]:
    return [0, hvd.size() - 1]


def pair() -> hvd.ProcessSet:
    """Of the first and the last of three ranks."""
    return hvd.add_process_set(first_and_last())


def case_all_ranks() -> None:
    every = hvd.global_process_set
    assert (every.process_set_id, every.ranks) == (0, list(range(hvd.size())))
    assert (every.rank(), every.size(), every.included()) == (hvd.rank(), hvd.size(), True)
    assert hvd.process_set_by_id(0) is every
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=every).item() == hvd.size()


def case_given_to_init() -> None:
    size = hvd.size()
    if size == 1:
        return
    for sets in (each_alone(), [hvd.ProcessSet([size - 1, 0])] if size > 2 else [], "dynamic", None):
        hvd.shutdown()
        hvd.init(process_sets=sets, start_timeout=240, timeout=120)
        if isinstance(sets, list):
            assert [known.process_set_id for known in sets] == list(range(1, len(sets) + 1))
        for known in sets if isinstance(sets, list) else []:
            assert hvd.process_set_by_id(known.process_set_id) is known
            if known.included():
                total = hvd.allreduce(torch.tensor(hvd.rank()), op=hvd.Sum, process_set=known)
                assert total.item() == sum(known.ranks)
        hvd.barrier()


def case_added_removed_and_added_again() -> None:
    if hvd.size() < 3:
        return
    for _ in range(3):
        added = hvd.add_process_set(hvd.ProcessSet([2, 0]))
        assert added.ranks == [0, 2]
        if hvd.rank() != 1:
            assert added.rank() == hvd.rank() // 2
            gathered = hvd.allgather(torch.tensor([hvd.rank()]), process_set=added)
            assert gathered.tolist() == [0, 2]
        assert hvd.remove_process_set(added) is True
        assert added.process_set_id is None
        with raises(ValueError, "is not registered"):
            hvd.allreduce(torch.ones(1), process_set=added)
        assert hvd.remove_process_set(added) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False


def case_added_by_all_ranks_in_different_orders_of_names() -> None:
    """Regardless of other operations in flight: sets are matched by their ranks."""
    if hvd.size() < 3:
        return
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="in flight")
        added = pair()
    else:
        added = pair()
        handle = hvd.allreduce_async(torch.ones(2), name="in flight")
    assert hvd.synchronize(handle).tolist() == [1.0, 1.0]
    hvd.remove_process_set(added)


def case_a_rank_that_is_not_a_member() -> None:
    if hvd.size() < 3:
        return
    added = pair()
    if hvd.rank() == 1:
        assert added.included() is False
        assert added.size() == 2
        for call in (
            added.rank,
            lambda: hvd.allreduce(torch.ones(1), process_set=added),
            lambda: hvd.allgather(torch.ones(1), process_set=added),
            lambda: hvd.alltoall(torch.ones(2), process_set=added),
            lambda: hvd.reducescatter(torch.ones(2), process_set=added),
            lambda: hvd.broadcast(torch.ones(1), 0, process_set=added),
            lambda: hvd.barrier(added),
        ):
            with raises(ValueError, "rank 1 is not in process set [0, 2]"):
                call()
    hvd.remove_process_set(added)


def case_invalid_sets() -> None:
    size = hvd.size()
    for ranks, words in (
        ([], "needs some of"),
        ([size], "needs some of"),
        ([-1], "needs some of"),
        (list(range(size)), "global_process_set"),
    ):
        with raises(ValueError, words):
            hvd.add_process_set(ranks)
    with raises(ValueError, "takes a list of ranks"):
        hvd.ProcessSet(["0"])
    with raises(ValueError, "is not a ProcessSet"):
        hvd.allreduce(torch.ones(1), process_set=[0])
    with raises(ValueError, "there is no process set 99"):
        hvd.process_set_by_id(99)
    if size > 1:
        added = hvd.add_process_set([0])
        with raises(ValueError, "already registered"):
            hvd.add_process_set([0])
        with raises(ValueError, "already registered"):
            hvd.add_process_set(added)
        hvd.remove_process_set(added)


def case_every_collective_inside() -> None:
    if hvd.size() < 3:
        return
    added = pair()
    if added.included():
        mine, both = float(hvd.rank()), [0.0, 2.0]
        small, large = torch.full((4,), mine), torch.full((8192,), mine)
        for tensor in (small, large):
            assert hvd.allreduce(tensor, process_set=added)[0].item() == 1.0
            assert hvd.allreduce_(tensor.clone(), op=hvd.Max, process_set=added)[-1].item() == 2.0
            grouped = hvd.grouped_allreduce([tensor, tensor * 2], op=hvd.Sum, process_set=added)
            assert [one[0].item() for one in grouped] == [2.0, 4.0]
            gathered = hvd.allgather(tensor, process_set=added)
            assert gathered[:: len(tensor)].tolist() == both
            assert hvd.broadcast(tensor, 2, process_set=added)[0].item() == 2.0
            assert hvd.reducescatter(tensor, op=hvd.Sum, process_set=added).tolist() == [2.0] * (
                len(tensor) // 2
            )
            parts, rows = hvd.alltoall(tensor, [1, len(tensor) - 1], process_set=added)
            wanted = [1, 1] if hvd.rank() == 0 else [len(tensor) - 1] * 2
            assert rows.tolist() == wanted
            assert parts[0].item() == 0.0
            assert parts[-1].item() == 2.0
        with raises(ValueError, "root_rank 1 is not one of the ranks [0, 2]"):
            hvd.broadcast(small, 1, process_set=added)
        assert hvd.broadcast_object(hvd.rank(), 2, process_set=added) == 2
        assert hvd.allgather_object(hvd.rank(), process_set=added) == [0, 2]
        hvd.barrier(added)
    hvd.barrier()
    hvd.remove_process_set(added)


def case_the_same_name_in_two_sets_at_once() -> None:
    if hvd.size() < 3:
        return
    added = pair()
    everyone = hvd.allreduce_async(torch.tensor(hvd.rank()), name="same", op=hvd.Sum)
    if added.included():
        some = hvd.allreduce_async(torch.tensor(hvd.rank()), name="same", op=hvd.Sum, process_set=added)
        assert hvd.synchronize(some).item() == 2
    assert hvd.synchronize(everyone).item() == 3
    hvd.remove_process_set(added)


def case_gradients_inside() -> None:
    if hvd.size() < 3:
        return
    added = pair()
    if added.included():
        tensor = torch.ones(2, requires_grad=True)
        (hvd.allreduce(tensor, process_set=added) * hvd.rank()).sum().backward()
        assert tensor.grad.tolist() == [1.0, 1.0], "the mean of 0 and 2"
    hvd.remove_process_set(added)


def train(model: nn.Module, process_set: hvd.ProcessSet, steps: int = 4) -> None:
    optimizer = make_sgd(model.parameters())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=process_set)
    for inputs, targets in batches(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(mine(inputs)), mine(targets)).backward()
        optimizer.step()


def case_an_optimizer_inside() -> None:
    """Ranks of the set agree, the other rank differs, and all start with the same weights."""
    if hvd.size() < 3:
        return
    added = pair()
    model = make_model()
    if added.included():
        hvd.broadcast_parameters(model.state_dict(), root_rank=2, process_set=added)
    train(model, added)
    every = hvd.allgather(weights(model)[None])
    assert torch.equal(every[0], every[2])
    assert not torch.equal(every[0], every[1])
    train(model, hvd.global_process_set)
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    check(model)
    hvd.remove_process_set(added)


def case_equality_and_text() -> None:
    assert hvd.ProcessSet([1, 0]) == hvd.ProcessSet([0, 1, 1])
    assert hvd.ProcessSet([1]) != hvd.ProcessSet([0])
    assert len({hvd.ProcessSet([1, 0]), hvd.ProcessSet([0, 1])}) == 1
    assert repr(hvd.ProcessSet([1, 0])) == "ProcessSet(process_set_id=None, ranks=[0, 1])"


if __name__ == "__main__":
    run(globals())
