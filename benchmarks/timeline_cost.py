"""Measures the cost of a recorded timeline per training step, and its cost when recording is off: two ranks, CPU.

    python benchmarks/timeline_cost.py [--rounds 9] [--quick]

The same two processes take turns at training steps with and without a timeline. A third contestant, again without one,
shows how much two equal contestants differ. The cost when off is also computed from the duration of its comparisons.
Prints rows of a Markdown table; the last column is without / with.
"""

from __future__ import annotations

import tempfile
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _common import Timing, header, row
from _ranks import start_ranks, take_turns
from _training import Step, mlp, ours, resnet
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.observe.timeline import Timeline, recorder

SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MLP, 5.2 M parameters, batch 64": (partial(mlp, 512, 1536, 1536, 1280, 10), (64, 512), 12),
    "ResNet-20 x2, 1.1 M parameters, batch 16": (resnet, (16, 3, 32, 32), 6),
    "MLP, 0.1 M parameters, batch 8": (partial(mlp, 64, 256, 256, 10), (8, 64), 100),
}
"""Model, shape of a batch, steps per turn. The last one is nearly all overhead."""


def main() -> None:
    rounds = start_ranks(__doc__)
    if hvd.rank() == 0:
        print(header())
    for what, (make, shape, steps) in SUBJECTS.items():
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
                rounds,
            )
            hvd.stop_timeline()
        if hvd.rank() == 0:
            timings = {name: Timing.of(took / steps for took in them) for name, them in seconds.items()}
            print(row(what, timings["recorded"], "not recorded", timings["not recorded"]))
            print(row(f"{what}: nothing", timings["not recorded"], "again", timings["not recorded, again"]))
            tests = 2 * len(list(model.parameters())) + 4
            cost = tests * comparison() / timings["not recorded"].median
            print(f"| {what}: {tests} comparisons | {cost:.5%} of the step | | |", flush=True)


def repeat(step: Step, times: int, timeline: Timeline | None) -> None:
    """Run steps, recorded by ``timeline`` if there is one. Pending records are written before the next turn starts."""
    before, recorder.active = recorder.active, timeline
    for _ in range(times):
        step()
    recorder.active = before


def comparison() -> float:
    """Seconds of the check whether a timeline is recorded."""
    return min(timeit.repeat("recorder.active is None", globals={"recorder": recorder}, number=10**5)) / 10**5


if __name__ == "__main__":
    main()
