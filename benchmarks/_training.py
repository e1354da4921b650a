"""Models, data and training steps on several ranks, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, pairwise

import torch
from _ranks import has_horovod
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cloudtrain.distributed.torch as hvd

Step = Callable[[], None]
Shape = tuple[int, ...]


class Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut around them (He et al. 2015, figure 5, left)."""

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
    """ResNet-20 for 32x32 images with twice the width: 1.1 million parameters in 59 tensors."""
    blocks = [Residual(32, 32, 1) for _ in range(3)]
    for inputs, outputs in ((32, 64), (64, 128)):
        blocks += [Residual(inputs, outputs, 2), Residual(outputs, outputs, 1), Residual(outputs, outputs, 1)]
    stem = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def mlp(*widths: int) -> nn.Module:
    """Linear layers with the given widths, with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def alone(model: nn.Module, shape: Shape) -> Step:
    """Training without other ranks."""
    return step(model, sgd(model), shape)


def ours(model: nn.Module, shape: Shape) -> Step:
    return step(model, hvd.DistributedOptimizer(sgd(model), model.named_parameters()), shape)


def ddp(model: nn.Module, shape: Shape, *, views: bool) -> Step:
    return step(DistributedDataParallel(model, gradient_as_bucket_view=views), sgd(model), shape)


def horovod(model: nn.Module, shape: Shape) -> Step:
    """Horovod's step. Call this and the step only while Horovod is running."""
    import horovod.torch

    return step(model, horovod.torch.DistributedOptimizer(sgd(model), model.named_parameters()), shape)


def contestants() -> dict[str, Callable[[nn.Module, Shape], Step]]:
    """Functions that create a model's training step, by their names in the tables; cloudtrain's is the first."""
    return {
        "ours": ours,
        "DDP": partial(ddp, views=False),
        "DDP, gradients as views": partial(ddp, views=True),
        **({"Horovod": horovod} if has_horovod() else {}),
    }


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, shape: Shape) -> Step:
    batches: Iterator[tuple[Tensor, Tensor]] = cycle(list(data(shape)))

    def step() -> None:
        images, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def data(shape: Shape) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(4):
        yield torch.randn(shape, generator=generator), torch.randint(10, shape[:1], generator=generator)
