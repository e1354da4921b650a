"""After Ctrl-C at any moment of a save, the Checkpointer still saves and waits, and Python can exit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from cloudtrain.checkpoint import Checkpointer

pytestmark = pytest.mark.proof("checkpoints, `kill -9`", real="")

SCRIPT = """
    import contextlib, faulthandler, random, signal, sys
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    faulthandler.dump_traceback_later(230, exit=True)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    chance = random.Random(int(sys.argv[3]))
    checkpointer = Checkpointer(sys.argv[1], when_busy=sys.argv[2])
    for step in range(1, 301):
        with contextlib.suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 5e-3))
            checkpointer.save(step, {"weights": np.full(10_000, step)})
            checkpointer.wait()
            checkpointer.restore()
            signal.setitimer(signal.ITIMER_REAL, 0)
    checkpointer.wait()
    checkpointer.save(1000, {"weights": np.full(10_000, 1000)})
"""


@pytest.mark.parametrize("when_busy", ["wait", "skip", "queue"])
def test_interrupts_at_random_moments(tmp_path: Path, when_busy: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), when_busy, "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    checkpointer = Checkpointer(tmp_path, keep=None)
    assert checkpointer.steps()[-1] == 1000
    for step in checkpointer.steps():
        checkpoint = checkpointer.restore(step)
        assert checkpoint is not None
        assert np.array_equal(checkpoint.state["weights"], np.full(10_000, step))
