"""A saving process is killed with SIGKILL at random instants; committed checkpoints survive bit for bit."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import warm_python
from pure_state import same, state_of

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.storage import open_store

MOST = 60
"""The maximum number of kills, in case none has interrupted a save before."""

WRITER = Path(__file__).with_name("pure_state.py")


def run_and_kill(uri: str, log: Path, delay: float) -> int:
    """Start the writer, kill it ``delay`` seconds after its first commit; returns the last step it printed."""
    with open(log, "w+") as output:
        process = warm_python.start(
            [str(WRITER), uri], os.environ, output, output, interpreter=warm_python.NUMPY
        )
        deadline = time.monotonic() + 120
        try:
            while not log.read_text().endswith("\n") and process.poll() is None:
                assert time.monotonic() < deadline, "nothing was saved within 120 s"
                time.sleep(0.01)
            time.sleep(delay)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == -signal.SIGKILL, log.read_text()
    return int(log.read_text().rpartition("\n")[0].rpartition("\n")[2])


def is_half_written(uri: str, step: int) -> bool:
    """Whether ``step`` has data but no manifest."""
    keys = [entry.key for entry in open_store(uri).list(f"step-{step:012d}")]
    return bool(keys) and manifest_key(step) not in keys


@pytest.mark.parametrize("kills", [3, pytest.param(24, marks=pytest.mark.soak)])
def test_killed_at_random_instants(uri: str, tmp_path: Path, kills: int) -> None:
    instants = random.Random(0)
    torn = reported = kill = 0
    while kill < kills or (not torn and kill < MOST):
        kill += 1
        before, reported = reported, run_and_kill(uri, tmp_path / f"{kill}.log", instants.uniform(0, 0.3))
        checkpointer = Checkpointer(uri)
        checkpoint = checkpointer.restore()
        assert checkpoint is not None
        # The kill may come between a commit and the line that reports it.
        assert checkpoint.step in (reported, reported + 1)
        assert reported > before
        for step in checkpointer.steps():
            restored = checkpointer.restore(step)
            assert restored is not None
            assert same(restored.state, state_of(step))
        torn += is_half_written(uri, checkpoint.step + 1)
    print(f"{kill} kills, {reported} steps, {torn} saves cut in half, none of them visible")
    assert torn, "no kill interrupted a save: the test proves nothing"
