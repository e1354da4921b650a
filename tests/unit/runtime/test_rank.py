"""The process of one rank: what it needs of the runtime that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cloudtrain.runtime import rank
from cloudtrain.runtime.run_folder import pipe_path


def test_a_rank_does_not_start_if_its_runtime_has_died(tmp_path: Path) -> None:
    """The runtime was killed before the rank could ask the kernel for a signal at its parent's death."""
    os.mkfifo(pipe_path(str(tmp_path), 0))  # the runtime's end is closed
    (tmp_path / "train.py").write_text("open('started', 'w')")
    done = subprocess.run(
        [sys.executable, rank.__file__, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "CLOUDTRAIN_RUN_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert done.returncode == 1
    assert not (tmp_path / "started").exists()
