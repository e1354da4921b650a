"""Two ranks of a repeatedly preempted training see the same data as undisturbed, and learn the same weights."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_for_end, wait_until
from warm_python import WITHOUT_COMPILER

from cloudtrain import Job, JobStatus
from cloudtrain.platforms.local import LocalPlatform

Submit = Callable[..., Job]

TRAINS = """
    import argparse, json, os, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler

    import cloudtrain.distributed.torch as hvd
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.checkpoint.torch import ResumableSampler, capture, restore_or_broadcast
    from cloudtrain.distributed.torch.elastic import ElasticSampler

    WITHOUT_COMPILER
    def train(checkpointer, trace, hold):
        torch.manual_seed(1 + hvd.rank())  # new models differ between ranks: rank 0's counts
        data = torch.rand(60, 6, generator=torch.Generator().manual_seed(7))
        if arguments.sampler == "elastic":
            sampler = ElasticSampler(data, seed=3)
        else:
            sampler = ResumableSampler(DistributedSampler(data, hvd.size(), hvd.rank(), seed=3))
        loader = DataLoader(range(60), batch_size=5, sampler=sampler, num_workers=1)
        model = nn.Linear(6, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}

        step = restore_or_broadcast(checkpointer, **parts) or 0
        print(f"{os.path.basename(trace)}: first step", step + 1, flush=True)
        for epoch in range(sampler.epoch, 3):
            if epoch != sampler.epoch:
                sampler.set_epoch(epoch)
            if arguments.sampler == "elastic":
                sampler.reset()
            for number, indices in enumerate(loader):
                optimizer.zero_grad()
                loss = model(data[indices]).square().mean()
                loss.backward()
                optimizer.step()
                scheduler.step()
                step += 1
                sampler.record_batch(number, len(indices))
                with open(f"{trace}-{hvd.rank()}", "a") as seen:
                    print(json.dumps([step, indices.tolist(), loss.item()]), file=seen)
                while step == hold and not environment.preemption():
                    time.sleep(0.05)
                checkpointer.maybe_save(step, lambda: capture(**parts))
                environment.exit_if_preempted()
        if hvd.rank() == 0:
            numbers = [parameter.tolist() for parameter in model.parameters()]
            with open(trace + "-weights", "w") as file:
                json.dump(numbers, file)

    parser = argparse.ArgumentParser()
    parser.add_argument("--whole", help="the trace of the undisturbed training, which the first attempt runs first")
    parser.add_argument("--cut")
    parser.add_argument("--sampler")
    parser.add_argument("--holds", help="the step at which each attempt waits for a notice")
    arguments = parser.parse_args()
    holds, attempt = arguments.holds.split(","), int(os.environ["CLOUDTRAIN_ATTEMPT"])

    hvd.init()
    torch.set_num_threads(1)
    if attempt == 0:
        with Checkpointer(arguments.whole + "-checkpoints", every=4) as apart:
            train(apart, arguments.whole, hold=0)
    train(Checkpointer(every=4), arguments.cut, hold=int(holds[attempt]) if attempt < len(holds) else 0)
    hvd.shutdown()
""".replace("WITHOUT_COMPILER", WITHOUT_COMPILER)

TWO_RANKS = {"processes": {"processes_per_host": 2}}


def seen_by(path: Path, rank: int) -> dict[int, object]:
    """The data of each step, and its loss. Of repeated steps, the last one counts."""
    lines = path.with_name(f"{path.name}-{rank}").read_text().splitlines()
    return {record[0]: record[1:] for record in map(json.loads, lines)}


def first_steps(job: Job) -> list[int]:
    return [int(line.split()[-1]) for line in job.logs().splitlines() if "[rank 0] cut: first step" in line]


@pytest.mark.parametrize(
    ("sampler", "notices"),
    [
        ("distributed", 1),
        *(pytest.param(one, 2, marks=pytest.mark.soak) for one in ("distributed", "elastic")),
    ],
)
def test_the_same_data_and_the_same_weights(
    submit: Submit, tmp_path: Path, sampler: str, notices: int
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    holds = (9, 15)[:notices]
    given = {
        "whole": str(whole),
        "cut": str(cut),
        "sampler": sampler,
        "holds": ",".join(map(str, holds)),
    }
    job = submit(TRAINS, hyperparameters=given, distribution=TWO_RANKS)
    trace = cut.with_name("cut-0")
    for number, notify in enumerate((warn_last_host, Job.preempt)[:notices]):
        reached = f"\n[{holds[number]}, "
        wait_until(lambda: trace.exists() and reached in trace.read_text(), job)  # noqa: B023
        notify(job)
        wait_until(lambda: len(first_steps(job)) == number + 2, job)  # noqa: B023
    wait_for_end(job, 120)
    assert (job.status, job.describe().attempt) == (JobStatus.COMPLETED, notices), job.logs()

    starts = first_steps(job)
    assert starts[0] == 1
    assert all(start > hold for start, hold in zip(starts[1:], holds, strict=True)), starts
    for rank in (0, 1):
        assert seen_by(cut, rank) == seen_by(whole, rank)
    assert Path(f"{cut}-weights").read_text() == Path(f"{whole}-weights").read_text()
    # no step of rank 0 was lost: it saved at the step at which it was notified
    steps = [json.loads(line)[0] for line in trace.read_text().splitlines()]
    assert steps == sorted(set(steps))


def warn_last_host(job: Job) -> None:
    """Like Slurm, ahead of time: the ranks are not signalled."""
    hosts = [event["pid"] for event in LocalPlatform().events(job.name) if event["event"] == "host"]
    os.kill(hosts[-1], signal.SIGUSR1)
