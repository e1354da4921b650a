"""A process that copies its state into memory all the time is killed at any instant: the newest copy is whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from host_memory import make_host_memory

from cloudtrain.checkpoint import Checkpointer

SAVES = """
    import sys
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer(sys.argv[1])
    checkpoint = checkpointer.restore()
    step = checkpoint.step if checkpoint else 0
    while True:
        step += 1
        if step % 3 == 0:
            checkpointer._sealing.wait()
        checkpointer.save(step, {"weights": [np.full(500_000, step + n) for n in range(4)]}, to="memory")
        if step % 3 == 0:
            checkpointer._sealing.wait()
            print(step, flush=True)
"""


@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_the_newest_copy_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    make_host_memory(tmp_path / "memory", monkeypatch, 100_000_000)
    instants, done = random.Random(3), 0
    program = "\n".join(line[4:] for line in SAVES.splitlines())
    for _ in range(rounds):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "run")], env=os.environ, stdout=subprocess.PIPE
        ) as saving:
            assert saving.stdout
            first = saving.stdout.readline()
            time.sleep(instants.uniform(0, 0.15))
            saving.kill()
            reached = (first + saving.stdout.read()).split()
        checkpoint = Checkpointer(tmp_path / "run").restore()
        assert checkpoint is not None
        assert checkpoint.source == "the memory of this host"
        assert checkpoint.step >= int(reached[-1]) > done
        for number, array in enumerate(checkpoint.state["weights"]):
            assert set(array) == {checkpoint.step + number}
        done = checkpoint.step
