"""The last save of a script is committed even if the script ends without waiting, however it ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from cloudtrain.checkpoint import Checkpointer

SCRIPT = """
    import sys
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer(sys.argv[1], when_busy="queue")
    for step in range(1, 6):
        checkpointer.save(step, {{"weights": np.full(2_000_000, step, dtype=np.float64)}})
    {end}
"""

ENDS = {
    "it is through": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise RuntimeError('the power fails')", 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_last_save_is_committed(uri: str, end: str) -> None:
    line, status = ENDS[end]
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT.format(end=line)), uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    checkpoint = Checkpointer(uri).restore()
    assert checkpoint is not None
    assert checkpoint.step == 5
    assert set(checkpoint.state["weights"]) == {5}
