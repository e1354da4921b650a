"""Saves a state to S3 with and without copies in memory, and restores it from both; started by `checkpoint.py`.

    python _checkpoint_in_memory.py URI TENSORS FOLDER

Prints one JSON object with the seconds of each figure. Saves that set up buffers and connections are not measured.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _checkpoint_contestants import make_state, plain_copy, train

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.files import OFF, VARIABLE
from cloudtrain.contract import JobStatus, Paths
from cloudtrain.runtime.checkpoint_memory import CheckpointMemory
from cloudtrain.runtime.outcome import HostOutcome

SAVES = 3


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main(uri: str, tensors: int, folder: Path) -> None:
    state = make_state(tensors)
    figures = {"plain copy": plain_copy(state)}
    paths = Paths(folder)
    paths.make()
    memory = CheckpointMemory(paths, 0, {})
    assert memory.folder, memory.problem
    try:
        for name, variable in (("save without", OFF), ("save", str(memory.folder))):
            os.environ[VARIABLE] = variable
            checkpointer = Checkpointer(f"{uri}/{name.replace(' ', '-')}")
            stalls = []
            for step in range(1, SAVES + 3):
                train(state)
                stalls.append(seconds(partial(checkpointer.save, step, state)))
                checkpointer.wait()
            figures[f"{name}: stall"] = statistics.median(stalls[2:])
        stalls = []
        for step in range(10, 10 + SAVES):
            train(state)
            stalls.append(seconds(partial(checkpointer.save, step, state, to="memory")))
            checkpointer._sealing.wait()
        figures["save to memory: stall"] = statistics.median(stalls)
        figures["save to memory: whole"] = seconds(
            lambda: (checkpointer.save(99, state, to="memory"), checkpointer._sealing.wait())
        )
        for where, variable in (("memory", str(memory.folder)), ("S3", OFF)):
            os.environ[VARIABLE] = variable
            restoring = Checkpointer(f"{uri}/save")
            restoring.steps()  # connects
            figures[f"restore from {where}"] = seconds(partial(restoring.restore, into=state))
    finally:
        memory.end(HostOutcome(JobStatus.COMPLETED), print)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
