"""The process of one rank: what it needs of the runtime that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("gone", [True, False])
def test_a_rank_that_starts_late_does_not_join_the_next_attempt(gone: bool, tmp_path: Path) -> None:
    """Its runtime has died, another one reads the pipe, and the rank has another parent by now, which lives on."""
    os.mkfifo(pipe_path(str(tmp_path), 0))
    reader = os.open(pipe_path(str(tmp_path), 0), os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "train.py").write_text("open('started', 'w')")
    ended = subprocess.Popen(["true"])
    ended.wait()
    own = {
        "CLOUDTRAIN_RUN_DIR": str(tmp_path),
        "CLOUDTRAIN_RUNTIME_PID": str(ended.pid if gone else os.getpid()),
    }
    subprocess.run(
        ["sh", "-c", '"$@"; exit 0', "sh", sys.executable, rank.__file__, "train.py"],
        cwd=tmp_path,
        env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=True,
    )
    os.close(reader)
    assert (tmp_path / "started").exists() is not gone
