"""One of two recorded ranks. The clock of rank 1 is five seconds ahead, and rank 1 kills itself with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
if rank == 1:
    true_time = time.time_ns
    time.time_ns = lambda: true_time() + 5_000_000_000

import torch  # noqa: E402

import cloudtrain.distributed.torch as hvd  # noqa: E402

WIDTH = 64


def trained(steps: int, *, uneven: bool = False) -> list[int]:
    """Return the bucket size before each step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters()
    )
    batch = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(rank))
    sizes = []
    for _ in range(steps):
        sizes.append(optimizer._reducer._bucket_bytes)
        optimizer.zero_grad()
        if uneven and rank == 1:
            time.sleep(0.05)
        model(batch).square().mean().backward()
        optimizer.step()
    weights = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.equal(hvd.broadcast(weights.detach(), 0), weights)
    return sizes


def others() -> None:
    names = ["a", "b", "c"]
    handles = [hvd.allreduce_async(torch.ones(9000), name=n) for n in (names if rank else names[::-1])]
    handles += [hvd.allreduce_async(torch.ones(9000)) for _ in range(3)]
    for handle in handles:
        hvd.synchronize(handle)
    hvd.broadcast(torch.ones(9000), 0, name="b")
    hvd.allreduce(torch.ones(3), name="small")
    with hvd.same_order():
        hvd.allreduce_(torch.ones(9000), name="promised")


os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
os.environ["HOROVOD_AUTOTUNE"] = "1"
os.environ["HOROVOD_AUTOTUNE_LOG"] = str(folder / "autotune.csv")
hvd.init()
tuned = trained(57)
del os.environ["HOROVOD_AUTOTUNE"]
os.environ["HOROVOD_FUSION_THRESHOLD"] = "0"

hvd.start_timeline(folder / "whole.json", mark_cycles=True)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    trained(6, uneven=True)
others()
hvd.stop_timeline()
if rank == 0:
    profiler.export_chrome_trace(str(folder / "profile.json"))

own = folder / ("killed.rank1.json" if rank else "killed.json")
hvd.start_timeline(folder / "killed.json")
trained(4)
print(json.dumps({"tuned": tuned}), flush=True)
if rank == 1:
    while '{"step": 3}}' not in own.read_text():  # the step itself, not a collective within it
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    hvd.allreduce(torch.ones(3), name="gone")
except hvd.CollectiveError:
    hvd.shutdown()
