"""A small training script in Horovod's style that records its steps, and fails where its arguments say.

Every rank appends one JSON line per step to its own file in FOLDER. All ranks' batches together are the same for every
number of ranks, so that the losses equal those of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import elastic

SAMPLES = 64
JOINED_BATCH = 8
EPOCHS = 2
STEPS = EPOCHS * SAMPLES // JOINED_BATCH
STEPS_PER_COMMIT = 3


def make_dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    inputs = torch.randn(SAMPLES, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(torch.arange(SAMPLES), inputs, inputs.cumsum(1)[:, :3].tanh())


def once(folder: Path, name: str) -> bool:
    """True for the first call with this name in any process."""
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_next_commit(folder: Path) -> None:
    """Kill the process when half of the next file that torch saves is written."""
    save = torch.save

    def torn(obj: Any, file: Any) -> None:
        save(obj, file)
        file.truncate(file.tell() // 2)
        die()

    if once(folder, "killed-in-commit"):
        torch.save = torn


def train(options: argparse.Namespace) -> list[float]:
    """Returns the mean loss of every step of this process."""
    torch.manual_seed(5)
    dataset = make_dataset()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = elastic.ElasticSampler(dataset, seed=3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    losses = []
    holds = dict(options.hold)

    @elastic.run
    def steps(state: elastic.TorchState) -> None:
        entered = hvd.broadcast_object(time.time())
        batch = JOINED_BATCH // hvd.size()
        loader = DataLoader(dataset, batch_size=batch, sampler=sampler)
        for state.epoch in range(state.epoch, EPOCHS):  # noqa: B020
            for batch_idx, (indices, inputs, targets) in enumerate(loader):
                for rank, step in options.kill:
                    if (hvd.rank(), state.step) == (rank, step) and once(options.folder, f"killed-{step}"):
                        die()
                while hvd.size() != holds.get(state.step, hvd.size()):
                    time.sleep(0.1)
                    hvd.barrier()
                if state.step == options.stall and hvd.rank() == 1 and once(options.folder, "stalled"):
                    time.sleep(15)
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
                scheduler.step()
                sampler.record_batch(batch_idx, batch)
                losses.append(hvd.allreduce(loss.detach(), name="loss").item())
                note(options.folder, entered, state.step, indices.tolist(), losses[-1])
                state.step += 1
                if state.step == options.kill_in_commit and hvd.rank() == 0:
                    die_in_next_commit(options.folder)
                if state.step % STEPS_PER_COMMIT == 0:
                    state.commit()
            sampler.set_epoch(state.epoch + 1)

    state = elastic.TorchState(model, optimizer, sampler=sampler, scheduler=scheduler, epoch=0, step=0)
    state.register_reset_callbacks([(options.folder / f"reset-{os.getpid()}").touch])
    steps(state)
    return losses


def note(folder: Path, entered: float, step: int, indices: list[int], loss: float) -> None:
    line = {"entered": entered, "step": step, "world": hvd.size(), "indices": indices, "loss": loss}
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", action="append", default=[], type=pair, metavar="RANK:STEP")
    parser.add_argument("--kill-in-commit", type=int, metavar="STEP")
    parser.add_argument(
        "--stall", type=int, metavar="STEP", help="rank 1 makes the others wait longer than the timeout"
    )
    parser.add_argument("--hold", action="append", default=[], type=pair, metavar="STEP:WORLD")
    return parser.parse_args(arguments)


def pair(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(":")))


if __name__ == "__main__":
    import without_compiler  # noqa: F401

    torch.set_num_threads(1)
    options = parse()
    hvd.init(timeout=10 if options.stall else 120)
    train(options)
    hvd.shutdown()
