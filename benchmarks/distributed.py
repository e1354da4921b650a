"""Training steps of ``DistributedOptimizer`` against ``DistributedDataParallel``: two ranks, CPU, Gloo.

    python benchmarks/distributed.py [--rounds 9] [--quick]

Same seeds and data; the contestants take turns in the same two processes, in an order that turns from round
to round. Prints rows of a Markdown table: seconds for one training step, so the last column is ours / peer in
steps per second. Fails if the contestants do not end with the same weights.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import _common
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cloudtrain.distributed.torch as hvd

RANKS = 2
Step = Callable[[], None]


class Residual(nn.Module):
    """Two 3x3 convolutions around which the input is led (He et al. 2015, figure 5, left)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet() -> nn.Module:
    """ResNet-20 for 32x32 images, twice as wide: 1.1 million parameters in 59 tensors."""
    blocks = [Residual(32, 32, 1) for _ in range(3)]
    for inputs, outputs in ((32, 64), (64, 128)):
        blocks += [Residual(inputs, outputs, 2), Residual(outputs, outputs, 1), Residual(outputs, outputs, 1)]
    stem = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def mlp() -> nn.Module:
    """Four layers, 5.2 million parameters."""
    return nn.Sequential(
        nn.Linear(512, 1536),
        nn.ReLU(),
        nn.Linear(1536, 1536),
        nn.ReLU(),
        nn.Linear(1536, 1280),
        nn.ReLU(),
        nn.Linear(1280, 10),
    )


SUBJECTS = {
    "MLP, 5.2 M parameters, batch 64": (mlp, (64, 512), 12),
    "ResNet-20 x2, 1.1 M parameters, batch 16": (resnet, (16, 3, 32, 32), 6),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two rounds, to see that it runs")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    if "RANK" in os.environ:
        contest(rounds)
    else:
        launch([sys.executable, __file__, "--rounds", str(rounds)])


def launch(command: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    ranks = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                **shared,
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
        )
        for rank in range(RANKS)
    ]
    sys.exit(max(abs(rank.wait()) for rank in ranks))


def contest(rounds: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    if hvd.rank() == 0:
        print(_common.header())
    for what, (model, shape, steps) in SUBJECTS.items():
        models = {name: seeded(model) for name in ("ours", "DDP", "DDP, gradients as views")}
        stepping = {
            "ours": ours(models["ours"], shape),
            "DDP": ddp(models["DDP"], shape, views=False),
            "DDP, gradients as views": ddp(models["DDP, gradients as views"], shape, views=True),
        }
        seconds = take_turns(stepping, steps, rounds)
        weights = [nn.utils.parameters_to_vector(each.parameters()) for each in models.values()]
        for other in weights[1:]:
            torch.testing.assert_close(weights[0], other, rtol=1e-4, atol=1e-5)
        if hvd.rank() == 0:
            for peer in list(stepping)[1:]:
                timings = [_common.Timing.of(seconds[name]) for name in ("ours", peer)]
                print(_common.row(what, timings[0], peer, timings[1]), flush=True)


def take_turns(stepping: dict[str, Step], steps: int, rounds: int) -> dict[str, list[float]]:
    """Seconds a step, by contestant and round; one round before the first is not counted."""
    names = list(stepping)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            hvd.barrier()
            start = time.perf_counter()
            for _ in range(steps):
                stepping[name]()
            if turn:
                seconds[name].append((time.perf_counter() - start) / steps)
    return seconds


def seeded(model: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return model()


def ours(model: nn.Module, shape: tuple[int, ...]) -> Step:
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return step(model, hvd.DistributedOptimizer(sgd, model.named_parameters()), shape)


def ddp(model: nn.Module, shape: tuple[int, ...], *, views: bool) -> Step:
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return step(DistributedDataParallel(model, gradient_as_bucket_view=views), sgd, shape)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, ...]) -> Step:
    batches: Iterator[tuple[Tensor, Tensor]] = cycle(list(data(shape)))

    def step() -> None:
        images, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def data(shape: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(4):
        yield (
            torch.randn(shape, generator=generator),
            torch.randint(10, shape[:1], generator=generator),
        )


if __name__ == "__main__":
    main()
