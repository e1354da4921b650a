"""Training steps of ``DistributedOptimizer`` on two ranks, CPU, against ``DistributedDataParallel`` and Horovod.

    python benchmarks/training.py [step] [network] [hooks] [memory] [timeline] [--runs 9] [--quick] [--json]

- ``step``: seconds per step. Seeds and data are the same, and the contestants take turns in the same processes. Fails
  if they do not end with the same weights.
- ``network``: the same on two hosts, whose link carries 1 and 10 Gbit/s: network namespaces of this machine, shaped by
  tc, which requires root.
- ``hooks``: what the reduction of gradients costs the thread of the backward pass for one parameter of 8 numbers: its
  CPU time above that of the same model without a reduction. What others do on a busy machine is not counted.
- ``memory``: what the averaging of gradients adds, in copies of all gradients: the peak of resident memory (VmHWM of
  proc(5), reset through ``clear_refs``) during a model's steps, minus that of the same steps in the same process
  without other ranks. The C library returns all freed memory (``MALLOC_MMAP_THRESHOLD_``), so that only live memory is
  resident; the buffers of the allreduce count too. Each contestant has its own processes. The first steps allocate
  buckets.
- ``timeline``: the cost of a recorded timeline, and its cost when recording is off, which is also computed from the
  duration of its comparisons. "Again" shows how much two equal contestants differ.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path

import torch
from _common import OURS, TEST_FOLDERS, Report, resident
from _ranks import has_horovod, run_in_ranks, run_on_hosts, run_parts_in_ranks, running, take_turns
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cloudtrain.distributed.torch as hvd
from cloudtrain.observe.timeline import Timeline, recorder

Step = Callable[[], None]
Shape = tuple[int, ...]
Subject = tuple[Callable[[], nn.Module], Shape, int]
"""A model, the shape of a batch, steps per turn."""


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


class Product(nn.Module):
    """Many parameters of 8 elements, for which hooks take longer than copies."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(parameters)])

    def forward(self, values: Tensor) -> Tensor:
        for factor in self.factors:
            values = values * factor
        return values.sum()


MLP: Subject = (partial(mlp, 512, 1536, 1536, 1280, 10), (64, 512), 12)
RESNET: Subject = (resnet, (16, 3, 32, 32), 6)
DEEP: Subject = (partial(mlp, *[128] * 65, 10), (32, 128), 12)
SMALL: Subject = (partial(mlp, 64, 256, 256, 10), (8, 64), 100)
"""Nearly all overhead."""
SUBJECTS = {
    "MLP, 5.2 M parameters, batch 64": MLP,
    "ResNet-20 x2, 1.1 M parameters, batch 16": RESNET,
}
ON_HOSTS = {**SUBJECTS, "MLP of 65 layers, 1.1 M parameters, batch 32": DEEP}
WIDE, WIDE_SHAPE = (*[2048] * 9, 10), (8, 2048)
"""33.6 million parameters: 134 MB of gradients, of which the largest is an eighth."""
FIRST_STEPS, LATER_STEPS = 3, 5
HOOK_STEPS = 20


def ours(model: nn.Module, shape: Shape) -> Step:
    return step_of(model, hvd.DistributedOptimizer(sgd(model), model.named_parameters()), shape)


def ddp(model: nn.Module, shape: Shape, *, views: bool) -> Step:
    return step_of(DistributedDataParallel(model, gradient_as_bucket_view=views), sgd(model), shape)


def horovod(model: nn.Module, shape: Shape) -> Step:
    """Horovod's step. Call this and the step only while Horovod is running."""
    import horovod.torch

    return step_of(model, horovod.torch.DistributedOptimizer(sgd(model), model.named_parameters()), shape)


def contestants() -> dict[str, Callable[[nn.Module, Shape], Step]]:
    """Functions that create a model's training step."""
    return {
        OURS: ours,
        "DDP": partial(ddp, views=False),
        "DDP, gradients as views": partial(ddp, views=True),
        **({"Horovod": horovod} if has_horovod() else {}),
    }


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, shape: Shape) -> Step:
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


def step(report: Report, given: argparse.Namespace, subjects: Mapping[str, Subject] = SUBJECTS) -> None:
    link = os.environ.get("GIGABITS")
    for what, (make, shape, steps) in [*subjects.items()][: 1 if given.quick else None]:
        models, stepping = {}, {}
        for name, contestant in contestants().items():
            torch.manual_seed(1)
            models[name] = make()
            with running(name):
                stepping[name] = contestant(models[name], shape)
        seconds = take_turns(stepping, 2 if given.quick else steps, given.runs)
        first, *others = (nn.utils.parameters_to_vector(model.parameters()) for model in models.values())
        for other in others:
            torch.testing.assert_close(first, other, rtol=1e-4, atol=1e-5)
        report.add_all(f"step of {what}" + (f", {link} Gbit/s" if link else ""), seconds)


def network(report: Report, given: argparse.Namespace) -> None:
    """Start ranks on two hosts."""
    sys.path += TEST_FOLDERS
    from host_network import NetworkError

    try:
        for gigabits in (10.0,) if given.quick else (1.0, 10.0):
            run_on_hosts("network", given, gigabits)
    except NetworkError as error:
        sys.exit(f"cannot create linked hosts: {error}")


def hooks(report: Report, given: argparse.Namespace) -> None:
    for parameters in (100,) if given.quick else (100, 400):
        turns = backward_passes(parameters)
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for turn in range(given.runs + 1):
            for name, one in turns.items():
                took = statistics.median(one() for _ in range(HOOK_STEPS))
                if turn:
                    seconds[name].append(took)
        for name in (OURS, "DDP, gradients as views"):
            above = [own - plain for own, plain in zip(seconds[name], seconds["plain"], strict=True)]
            report.add(
                f"hooks of {parameters} parameters, CPU for each", name, [took / parameters for took in above]
            )


def backward_passes(parameters: int) -> dict[str, Callable[[], float]]:
    """Functions that run one step, and return the seconds of the backward pass with the wait for the reduction."""
    plain, own, theirs = (Product(parameters) for _ in range(3))
    wrapped = DistributedDataParallel(theirs, gradient_as_bucket_view=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(own.parameters(), lr=0.0), named_parameters=own.named_parameters()
    )

    def backward(model: nn.Module, after: Callable[[], object]) -> float:
        model.zero_grad()
        loss = model(torch.ones(8))
        began = time.thread_time()
        loss.backward()
        after()
        return time.thread_time() - began

    return {
        "plain": lambda: backward(plain, lambda: None),
        OURS: lambda: backward(own, optimizer.synchronize),
        "DDP, gradients as views": lambda: backward(wrapped, lambda: None),
    }


def memory(report: Report, given: argparse.Namespace) -> None:
    """Start ranks for each contestant."""
    for name in [*contestants()][: 1 if given.quick else None]:
        environ = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "CONTESTANT": name}
        run_in_ranks(["memory"], report, given, environ)


def memory_of_one(report: Report, given: argparse.Namespace) -> None:
    name, widths = os.environ["CONTESTANT"], WIDE[-3:] if given.quick else WIDE

    def alone(model: nn.Module, shape: Shape) -> Step:
        return step_of(model, sgd(model), shape)

    peaks(alone, widths)  # loads the pages of the libraries
    lonely = peaks(alone, widths)
    with running(name):
        together = peaks(contestants()[name], widths)
    gradients = sum(parameter.nbytes for parameter in mlp(*widths).parameters())
    for when, peak, base in zip(("first", "later"), together, lonely, strict=True):
        report.add(f"copies of the gradients, {when} steps", name, (peak - base) / gradients, "copies")


def peaks(contestant: Callable[[nn.Module, Shape], Step], widths: tuple[int, ...]) -> tuple[int, int]:
    """The peak memory in bytes above the initial level, in the first steps and in later ones."""
    before = resident("VmRSS")
    step = contestant(mlp(*widths), WIDE_SHAPE)
    found = []
    for steps in (FIRST_STEPS, LATER_STEPS):
        Path("/proc/self/clear_refs").write_text("5")
        for _ in range(steps):
            step()
        found.append(resident("VmHWM") - before)
    del step
    gc.collect()
    return found[0], found[1]


def timeline(report: Report, given: argparse.Namespace) -> None:
    subjects = {**SUBJECTS, "MLP, 0.1 M parameters, batch 8": SMALL}
    for what, (make, shape, steps) in [*subjects.items()][-1 if given.quick else 0 :]:
        model = make()
        step = ours(model, shape)
        with tempfile.TemporaryDirectory() as folder:
            hvd.start_timeline(Path(folder) / "timeline.json")
            seconds = take_turns(
                {
                    "recorded": partial(repeat, step, steps, recorder.active),
                    "not recorded": partial(repeat, step, steps, None),
                    "not recorded, again": partial(repeat, step, steps, None),
                },
                1,
                given.runs,
            )
            hvd.stop_timeline()
        for who, took in seconds.items():
            report.add(f"timeline of {what}", who, [each / steps for each in took])
        tests = 2 * len(list(model.parameters())) + 4
        share = 100 * tests * comparison() * steps / statistics.median(seconds["not recorded"])
        report.add(f"timeline of {what}: {tests} comparisons", "cloudtrain", share, "% of a step")


def repeat(step: Step, times: int, timeline: Timeline | None) -> None:
    """Run steps, which ``timeline`` records if it is given. Pending records are written before the next turn starts."""
    before, recorder.active = recorder.active, timeline
    for _ in range(times):
        step()
    recorder.active = before


def comparison() -> float:
    """The seconds of a check whether a timeline is being recorded."""
    return min(timeit.repeat("recorder.active is None", globals={"recorder": recorder}, number=10**5)) / 10**5


if __name__ == "__main__":
    parts = {
        "step": step, "network": partial(step, subjects=ON_HOSTS), "hooks": hooks, "memory": memory_of_one,
        "timeline": timeline,
    }  # fmt: skip
    run_parts_in_ranks(__doc__, parts, runs=9, instead={"network": network, "memory": memory})
