"""join: a rank without data contributes zeros until all ranks have joined."""

from __future__ import annotations

import torch
from _cases import raises, run
from _training import make_model, make_sgd, weights
from torch import nn

import cloudtrain.distributed.torch as hvd


def case_nothing_in_flight() -> None:
    for _ in range(3):
        assert 0 <= hvd.join() < hvd.size()
    assert len(set(hvd.allgather_object(hvd.join()))) == 1, "all ranks get the same result"


def case_the_last_rank_is_returned() -> None:
    for last in range(hvd.size()):
        if hvd.rank() == last:
            hvd.barrier()  # completes once all others have joined
        assert hvd.join() == last


def case_uneven_steps() -> None:
    """Rank r has r + 1 tensors: the sum of step s is that of the ranks from s on."""
    for length in (3, 20_000):
        for step in range(hvd.rank() + 1):
            tensor = torch.full((length,), hvd.rank() + 1.0)
            result = hvd.allreduce(tensor, name=f"step {step}", op=hvd.Sum)
            assert result.unique().tolist() == [sum(range(step + 1, hvd.size() + 1))]
        assert hvd.join() == hvd.size() - 1


def case_uneven_steps_without_names() -> None:
    for _ in range(2):
        for step in range(2 * (hvd.size() - hvd.rank())):
            result = hvd.allreduce(torch.ones(2), op=hvd.Sum)
            assert result.tolist() == [float(hvd.size() - step // 2)] * 2
        hvd.join()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [float(hvd.size())] * 2


def case_an_average_is_over_all_ranks() -> None:
    if hvd.rank() == 0:
        result = hvd.allreduce(torch.ones(4), name="average")
        torch.testing.assert_close(result, torch.full((4,), 1 / hvd.size()))
    hvd.join()


def case_groups_and_types() -> None:
    if hvd.rank() == 0:
        tensors = [torch.ones(3), torch.full((2,), 5), torch.ones(9000, dtype=torch.bfloat16)]
        reduced = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group")
        assert [tensor.unique().tolist() for tensor in reduced] == [[1.0], [5], [1.0]]
        result = hvd.allreduce(torch.full((2,), -3), name="max", op=hvd.Max)
        assert result.tolist() == [-3 if hvd.size() == 1 else 0] * 2
    hvd.join()


def case_operations_requested_before_joining_complete() -> None:
    handle = hvd.allreduce_async(torch.ones(2), name=f"of rank {hvd.rank()}", op=hvd.Sum)
    hvd.join()
    assert hvd.synchronize(handle).tolist() == [1.0, 1.0]


def case_barriers_continue() -> None:
    for _ in range(hvd.rank()):
        hvd.barrier()
    hvd.join()


def case_operations_that_need_all_ranks() -> None:
    if hvd.size() == 1:
        return
    others = hvd.size() - 1
    if hvd.rank() < others:
        hvd.allreduce(torch.ones(1), name="the last one has joined now")
        joined = f"it needs ranks [{others}], which have joined"
        for kind, call in (
            ("allgather", lambda: hvd.allgather(torch.ones(1), name="t")),
            ("broadcast", lambda: hvd.broadcast(torch.ones(1), 0, name="t")),
            ("alltoall", lambda: hvd.alltoall(torch.ones(hvd.size()), name="t")),
            ("reducescatter", lambda: hvd.reducescatter(torch.ones(3), name="t")),
        ):
            with raises(hvd.CollectiveError, f"{kind} of t: ", joined):
                call()
    hvd.join()
    assert hvd.allgather(torch.ones(1), name="t").tolist() == [1.0] * hvd.size()


def train(steps: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step)
        model(torch.randn(4, 4, dtype=torch.float64)).square().mean().backward()
        optimizer.step()


def case_an_optimizer_with_uneven_data() -> None:
    """All ranks have the same batches, but rank r only 2 + 2 r of them."""
    model, alone = make_model(), make_model()
    optimizer = make_sgd(model.parameters())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Average)
    for _ in range(2):
        train(2 + 2 * hvd.rank(), model, optimizer)
        assert hvd.join() == hvd.size() - 1
        hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=hvd.size() - 1)
    single = make_sgd(alone.parameters())
    for _ in range(2):
        for step in range(2 * hvd.size()):
            single.zero_grad()
            torch.manual_seed(step)
            alone(torch.randn(4, 4, dtype=torch.float64)).square().mean().backward()
            share = (hvd.size() - max(step // 2, 0)) / hvd.size()
            for parameter in alone.parameters():
                parameter.grad *= share
            single.step()
    torch.testing.assert_close(weights(model), weights(alone))


def case_an_optimizer_that_sums_and_compresses() -> None:
    model = make_model(dtype=torch.float32)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), op=hvd.Sum, compression=hvd.Compression.fp16
    )
    for _ in range(1 + hvd.rank()):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    last = hvd.join()
    finished = weights(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    assert hvd.rank() != last or torch.equal(finished, weights(model))


def case_inside_a_process_set() -> None:
    """A process set continues without its joined rank."""
    if hvd.size() < 3:
        return
    added = hvd.add_process_set([0, 2])
    if hvd.rank() == 0:
        for length in (2, 20_000):
            result = hvd.allreduce(torch.ones(length), op=hvd.Sum, name="in the set", process_set=added)
            assert result.unique().tolist() == [1.0]
    hvd.join()
    assert hvd.remove_process_set(added)


if __name__ == "__main__":
    run(globals())
