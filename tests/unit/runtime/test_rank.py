"""The process of one rank: what it needs of the runtime that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.runtime import rank
from cloudtrain.runtime.run_folder import RankRecord, pipe_path


def test_a_rank_does_not_start_if_its_runtime_has_died(tmp_path: Path) -> None:
    """The runtime was killed before the rank could ask the kernel for a signal at its parent's death."""
    os.mkfifo(pipe_path(str(tmp_path), 0))  # the runtime's end is closed
    (tmp_path / "train.py").write_text("open('started', 'w')")
    done = subprocess.run(
        [sys.executable, rank.__file__, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "CLOUDTRAIN_RUN_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=240,
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
        timeout=240,
        check=True,
    )
    os.close(reader)
    assert (tmp_path / "started").exists() is not gone


FAIL = "def fail():\n    raise ValueError('no epochs')\n"


@pytest.mark.parametrize(
    ("code", "exception_type", "message"),
    [
        (
            "try:\n    fail()\nexcept ValueError as error:\n    print(error); sys.exit(1)",
            "ValueError",
            "no epochs",
        ),
        ("try:\n    fail()\nexcept ValueError:\n    sys.exit('give epochs')", "SystemExit", "give epochs"),
        ("try:\n    fail()\nexcept ValueError:\n    sys.exit(2)", "SystemExit", ""),
        (
            "def train():\n    sys.exit(1)\ntry:\n    fail()\nexcept ValueError:\n    train()",
            "SystemExit",
            "",
        ),
        ("try:\n    sys.exit()\nexcept SystemExit:\n    sys.exit(1)", "SystemExit", ""),
        ("try:\n    fail()\nexcept ValueError:\n    pass\nsys.exit(1)", "SystemExit", ""),
    ],
)
def test_a_handler_that_exits_with_one_ends_the_script_for_what_it_caught(
    code: str, exception_type: str, message: str, tmp_path: Path
) -> None:
    """As Hydra does, which prints a part of the traceback and a last line that does not say why."""
    (tmp_path / "train.py").write_text(f"import sys\n{FAIL}{code}")
    done = subprocess.run(
        [sys.executable, rank.__file__, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "CLOUDTRAIN_RUN_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=240,
    )
    record = RankRecord.read(str(tmp_path), 0)
    assert record is not None
    assert (record.exception_type, record.message) == (exception_type, message)
    assert record.exit_code == done.returncode
    assert ("line 3, in fail" in record.traceback) == (exception_type == "ValueError")
