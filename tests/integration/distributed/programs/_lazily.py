"""A rank joins, dies, fails, leaves or restarts while collectives are in flight, with the waits of `_lazy_wait`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import Any

import _lazy_wait
import torch
from _cases import DEVICE

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.options import STALL_WARNING
from cloudtrain.observe.checkpointing import Unspoiled

LIMIT = 60.0
"""Seconds within which a rank names one that has died."""


def main(case: str) -> None:
    torch.set_num_threads(1)
    os.environ[STALL_WARNING] = "1"
    torch.set_default_device(DEVICE)
    hvd.init(start_timeout=240, timeout=240)
    _lazy_wait.install()
    globals()[case]()
    print("done", flush=True)


class Trainer:
    def __init__(self, *layers: torch.nn.Module) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), *layers)
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1), self.model.named_parameters()
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()


@contextlib.contextmanager
def names_rank(rank: int) -> Any:
    """The block soon raises an error that names ``rank``."""
    began = time.monotonic()
    try:
        yield
    except hvd.CollectiveError as error:
        assert f"rank {rank} has died" in str(error), error
        assert time.monotonic() - began < LIMIT, "too late"
    else:
        raise AssertionError("no error")


def join() -> None:
    """Rank 0 has the most batches, and each one needs the others' zeros after they have joined."""
    trainer = Trainer(hvd.SyncBatchNorm(4))
    for _ in range(2):
        for _ in range(1 + 2 * (hvd.size() - hvd.rank() - 1)):
            trainer.step()
            _lazy_wait.synchronize()
        assert hvd.join() == 0
    # The same if nothing waits for the GPU before the join.
    for _ in range(1 + 2 * hvd.rank()):
        trainer.step()
    assert hvd.join() == hvd.size() - 1
    _lazy_wait.synchronize()
    # Without negotiation and without a work: what the host knows must not depend on the call's return.
    total = torch.ones(3)
    with hvd.same_order():
        for _ in range(1 + hvd.rank()):
            total.fill_(1.0)
            hvd.allreduce_(total, op=hvd.Sum)
            _lazy_wait.synchronize()
    assert hvd.join() == hvd.size() - 1
    assert total.tolist() == [hvd.size() - hvd.rank()] * 3, total
    hvd.shutdown()


def dead_before_a_step() -> None:
    trainer = Trainer()
    trainer.step()
    _lazy_wait.synchronize()
    die_on_rank_1()
    time.sleep(0.5)
    with names_rank(1):
        trainer.step()


def dead_in_a_step() -> None:
    """The dead rank is noticed after the launch: first where the host waits for the GPU, then at the next step."""
    trainer = Trainer()
    trainer.step()
    _lazy_wait.synchronize()
    if hvd.rank() == 1:
        time.sleep(0.5)
        die_on_rank_1()
    trainer.step()
    assert _lazy_wait.running(), "the kernel waits for rank 1"
    with names_rank(1):
        _lazy_wait.synchronize()  # returns, because the group is aborted
        assert Unspoiled().problem(), "no checkpoint may hold the results"
        trainer.step()
    if hvd.rank() == 0:
        hvd.shutdown()  # does not wait for anyone


def dead_while_others_join() -> None:
    trainer = Trainer()
    trainer.step()
    if hvd.rank() == 1:
        _lazy_wait.synchronize()
        die_on_rank_1()
    trainer.step()
    with names_rank(1):
        hvd.join()


def layers() -> None:
    """A rank that leaves out a layer is named; then it joins early, and then it dies."""
    norm = hvd.SyncBatchNorm(3)
    own = torch.ones(2, 3)
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("cloudtrain.distributed").addHandler(handler)
    for _ in range(3):
        norm(own)
    _lazy_wait.synchronize()
    if hvd.rank() == 0:
        norm(own)
        while _lazy_wait.running() and not warnings:
            time.sleep(0.05)
        assert (
            "sync_batch_norm.forward of layer 1: ranks [0] have called it, ranks [1] have not" in warnings[0]
        )
        for _ in range(4):
            norm(own)
    else:
        time.sleep(2 * float(os.environ[STALL_WARNING]))
    assert hvd.join() == 0
    for _ in range(3):
        norm(own)
    _lazy_wait.synchronize()
    if hvd.rank() == 1:
        time.sleep(0.5)
        die_on_rank_1()
    norm(own)
    with names_rank(1):
        _lazy_wait.synchronize()
        norm(own)


def raises_with_work_in_flight() -> None:
    """The process of a script that fails ends, whatever its kernels wait for."""
    trainer = Trainer()
    trainer.step()
    _lazy_wait.synchronize()
    if hvd.rank() == 1:
        time.sleep(2)
        os._exit(0)  # never takes part in the second step
    trainer.step()
    assert _lazy_wait.running()
    raise ValueError("the script's own error")


def leaves_with_work_in_flight() -> None:
    """shutdown lets the last step end on all ranks, although they come to it at different times."""
    trainer = Trainer()
    time.sleep(0.7 * hvd.rank())
    trainer.step()
    hvd.shutdown()
    assert _lazy_wait.running() == 0
    assert not _lazy_wait._aborted


def starts_again() -> None:
    """After a failure, elastic training ends what is in flight instead of waiting for it."""
    trainer = Trainer(hvd.SyncBatchNorm(4))
    state = hvd.elastic.TorchState(model=trainer.model, optimizer=trainer.optimizer, batch=0)
    failed = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        _lazy_wait.install()
        while state.batch < 4:
            if state.batch == 2 and not failed:
                failed.append(True)
                if hvd.rank() == 0:
                    trainer.step()  # the others do not take part in it
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="mismatch")
            trainer.step()
            _lazy_wait.synchronize()
            state.batch += 1
            state.commit()

    began = time.monotonic()
    train(state)
    assert failed
    assert not Unspoiled().problem(), "the collectives work again"
    assert time.monotonic() - began < LIMIT
    hvd.shutdown()


def die_on_rank_1() -> None:
    if hvd.rank() == 1:
        os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1])
