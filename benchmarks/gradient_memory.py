"""Measures the memory that gradient averaging adds to training: two ranks, CPU.

    python benchmarks/gradient_memory.py

This is the peak of resident memory (VmHWM of proc(5), reset through ``clear_refs``) during a model's steps, minus the
peak of the same steps in the same process without other ranks. The C library returns all freed memory
(``MALLOC_MMAP_THRESHOLD_``), so that only live memory is resident; the buffers of the allreduce count too. Every
contestant has its own processes. The first three steps are listed separately, because they allocate buckets. Prints
rows of a Markdown table, in copies of all gradients.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _common import resident
from _ranks import is_rank, run_in_ranks, running
from _training import Shape, Step, alone, contestants, mlp
from torch import nn

import cloudtrain.distributed.torch as hvd

WIDTHS = (*[2048] * 9, 10)
SHAPE = (8, 2048)
FIRST_STEPS, LATER_STEPS = 3, 5


def main() -> None:
    if is_rank():
        contest(sys.argv[1])
        return
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 16)
    print(
        "| who | copies of the gradients in the first steps | in later steps |\n| --- | --- | --- |",
        flush=True,
    )
    for name in contestants():
        code = run_in_ranks(name)
        if code:
            sys.exit(code)


def contest(name: str) -> None:
    torch.set_num_threads(1)
    hvd.init()
    peaks(alone)  # loads the pages of the libraries
    lonely = peaks(alone)
    with running(name):
        together = peaks(contestants()[name])
    gradients = sum(parameter.nbytes for parameter in mlp(*WIDTHS).parameters())
    extra = [f"{(peak - base) / gradients:.2f}" for peak, base in zip(together, lonely, strict=True)]
    if hvd.rank() == 0:
        print("|", " | ".join([name, *extra]), "|", flush=True)


def peaks(contestant: Callable[[nn.Module, Shape], Step]) -> tuple[int, int]:
    """Peak bytes above the level before, in the first steps and in the later ones."""
    before = resident("VmRSS")
    step = contestant(mlp(*WIDTHS), SHAPE)
    first = peak(partial(repeat, step, FIRST_STEPS))
    later = peak(partial(repeat, step, LATER_STEPS))
    del step
    gc.collect()
    return first - before, later - before


def repeat(step: Step, times: int) -> None:
    for _ in range(times):
        step()


def peak(run: Callable[[], None]) -> int:
    """The peak of resident bytes while ``run`` runs."""
    Path("/proc/self/clear_refs").write_text("5")
    run()
    return resident("VmHWM")


if __name__ == "__main__":
    main()
