"""Compares training steps of ``DistributedOptimizer`` with ``DistributedDataParallel`` and Horovod: two ranks, CPU.

    python benchmarks/distributed.py [--rounds 9] [--quick]

Seeds and data are the same, and the contestants take turns in the same two processes. Horovod takes part if
``scripts/build_horovod`` has built it. Prints rows of a Markdown table in seconds per training step; the last column is
cloudtrain / peer in steps per second. Fails if the contestants do not end with the same weights.
"""

from __future__ import annotations

from functools import partial

import torch
from _common import Timing, header, row
from _ranks import running, start_ranks, take_turns
from _training import contestants, mlp, resnet
from torch import nn

import cloudtrain.distributed.torch as hvd

SUBJECTS = {
    "MLP, 5.2 M parameters, batch 64": (partial(mlp, 512, 1536, 1536, 1280, 10), (64, 512), 12),
    "ResNet-20 x2, 1.1 M parameters, batch 16": (resnet, (16, 3, 32, 32), 6),
}
"""Model, shape of a batch, steps per turn."""


def main() -> None:
    rounds = start_ranks(__doc__)
    if hvd.rank() == 0:
        print(header())
    for what, (make, shape, steps) in SUBJECTS.items():
        models, stepping = {}, {}
        for name, contestant in contestants().items():
            torch.manual_seed(1)
            models[name] = make()
            with running(name):
                stepping[name] = contestant(models[name], shape)
        seconds = take_turns(stepping, steps, rounds)
        ours, *others = (nn.utils.parameters_to_vector(model.parameters()) for model in models.values())
        for other in others:
            torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)
        if hvd.rank() == 0:
            timings = {name: Timing.of(took) for name, took in seconds.items()}
            for peer in list(timings)[1:]:
                print(row(what, timings["ours"], peer, timings[peer]), flush=True)


if __name__ == "__main__":
    main()
