"""A rank that another project's launcher starts, without the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudtrain.runtime import rank
from cloudtrain.runtime.run_folder import (
    AGENT_COMMAND,
    RankRecord,
    pipe_path,
    read_code,
    write_command,
    write_variables,
)

PLACE = {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1"}


class Started:
    """A started rank, and the end of its pipe that the runtime reads."""

    def __init__(self, folder: Path, script: str, added: tuple[str, ...] = (), **variables: str) -> None:
        run = self.run = str(folder)
        os.mkfifo(pipe_path(run, 0))
        self.reader = os.open(pipe_path(run, 0), os.O_RDONLY | os.O_NONBLOCK)
        (folder / "train.py").write_text(script)
        write_command(run, run, ["train.py", "--x", "a b"])
        write_variables(run, 0, PLACE)
        own = {"CLOUDTRAIN_RUN_DIR": run, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        environ = {name: value for name, value in os.environ.items() if name not in PLACE}
        self.process = subprocess.Popen(
            [sys.executable, rank.__file__, *added, AGENT_COMMAND], cwd="/", env={**environ, **own}
        )

    def output(self) -> str:
        assert self.process.wait(60) is not None
        os.set_blocking(self.reader, True)
        return os.read(self.reader, 1 << 16).decode()


def test_the_rank_has_its_place_and_its_arguments(tmp_path: Path) -> None:
    script = """
import os, sys
names = ("RANK", "WORLD_SIZE", "NODE_RANK")
print(sys.argv, [os.environ[name] for name in names], os.getcwd(), flush=True)
sys.exit(3)
"""
    started = Started(tmp_path, script, ("--local_rank=0",), NODE_RANK="the launcher's", LOCAL_RANK="0")
    shown = (
        f"['train.py', '--local_rank=0', '--x', 'a b'] ['2', '4', \"the launcher's\"] {tmp_path.resolve()}\n"
    )
    assert started.output() == shown
    assert started.process.returncode == 3
    assert (read_code(str(tmp_path), 0) or (None,))[0] == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_launcher_sees_the_signal_that_ended_the_rank(tmp_path: Path, number: int) -> None:
    started = Started(tmp_path, f"import os; os.kill(os.getpid(), {int(number)})")
    assert started.process.wait(60) == -number
    assert (read_code(str(tmp_path), 0) or (None,))[0] == -number


@pytest.mark.parametrize(("name", "value"), [("RANK", "3"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "5")])
def test_another_place_than_the_jobs_is_refused(tmp_path: Path, name: str, value: str) -> None:
    started = Started(tmp_path, "open('started', 'w')", **{name: value})
    assert started.process.wait(60) == 1
    assert not (tmp_path / "started").exists()
    record = RankRecord.read(str(tmp_path), 0)
    if name == "LOCAL_RANK":  # it is none of the ranks of the job
        assert record is None
    else:
        assert record
        assert f"it set {name}={value} for the rank whose {name} is {PLACE[name]}" in record.message


def test_the_rank_ends_with_the_runtime_even_if_its_launcher_lives(tmp_path: Path) -> None:
    """Nothing reads its output then. The launcher here is this test."""
    started = Started(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    deadline = time.monotonic() + 240
    text = b""
    while not text.endswith(b"\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        try:
            text += os.read(started.reader, 100)
        except BlockingIOError:
            continue
    os.close(started.reader)
    assert started.process.wait(60) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:  # a dead process is there until it is reaped, by another one
            os.kill(int(text), 0)
            time.sleep(0.02)
