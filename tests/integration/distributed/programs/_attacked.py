"""Exchanges objects and tensors with the other ranks, once the file ``go`` exists in the folder, until ``stop`` does.

Prints what it exchanged, as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

import cloudtrain.distributed.torch as hvd


def main(folder: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    hvd.init(start_timeout=240)
    memory, descriptors = used()
    (folder / f"ready-{hvd.rank()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    found: dict[str, Any] = {"settings": hvd.broadcast_object({"lr": 0.5}, root_rank=1, name="settings")}
    found["ranks"] = hvd.allgather_object(hvd.rank(), name="ranks")
    found["large"] = len(hvd.broadcast_object(bytes(1 << 20), root_rank=1, name="large"))
    most_descriptors = found["steps"] = 0
    while not hvd.broadcast_object((folder / "stop").exists(), name="stop"):
        summed = hvd.allreduce(torch.ones(16), name="gradients", op=hvd.Sum)
        assert summed.tolist() == [hvd.size()] * 16
        found["steps"] += 1
        most_descriptors = max(most_descriptors, used()[1])
        time.sleep(0.005)
    found["MB"] = (used()[0] - memory) / 1e6
    found["descriptors"] = most_descriptors - descriptors
    print(json.dumps(found))


def used() -> tuple[float, int]:
    """The most memory that this process has used, in bytes, and the number of descriptors that it has open."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
