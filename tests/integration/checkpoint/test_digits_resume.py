"""The example digits_pytorch on two ranks: killed half way, it resumes and ends with the same weights."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import warm_python

from cloudtrain.checkpoint import Checkpointer

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_pytorch"
EPOCHS = 6
TIMEOUT = 120
"""Seconds for one run of two ranks on a busy machine."""


class Run:
    """Two ranks of the example, started the way launchers do."""

    def __init__(self, folder: Path, data: Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.logs = [folder / f"rank-{rank}.log" for rank in (0, 1)]
        self.ranks = [self._start(rank, port, folder, data, arguments) for rank in (0, 1)]

    def _start(
        self, rank: int, port: int, folder: Path, data: Path, arguments: tuple[str, ...]
    ) -> warm_python.Program:
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "SM_CHANNEL_TRAIN": str(data),
            "SM_MODEL_DIR": str(folder / "model"),
        }
        command = [str(EXAMPLE / "train.py"), f"--epochs={EPOCHS}", *arguments]
        with open(self.logs[rank], "wb") as log:
            return warm_python.start(command, environment, log, log, folder)

    def output(self) -> str:
        return "\n".join(log.read_text() for log in self.logs)

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def wait(self) -> str:
        """The output of both ranks; both must succeed."""
        try:
            codes = [rank.wait(TIMEOUT) for rank in self.ranks]
        finally:
            self.kill()
        assert codes == [0, 0], self.output()
        return self.output()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run(
        [sys.executable, str(EXAMPLE / "prepare.py"), folder.as_uri()], check=True, timeout=TIMEOUT
    )
    return folder


def weights(folder: Path) -> dict[str, bytes]:
    state = torch.load(folder / "model" / "model.pt", weights_only=True)
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


@pytest.mark.soak  # in CI: test_checkpoints_in_memory and test_same_data_order, with smaller models
def test_a_killed_run_resumes_and_ends_with_the_same_weights(data: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    output = Run(whole, data).wait()
    accuracies = [float(text) for text in re.findall(r"test:accuracy=([0-9.]+)", output)]
    assert len(accuracies) == EPOCHS + 1
    assert accuracies[-1] > 0.95

    first = Run(killed, data, "--epoch-seconds=0.5")
    checkpointer = Checkpointer(killed / "checkpoints")
    deadline = time.monotonic() + TIMEOUT
    while max(checkpointer.steps(), default=0) < EPOCHS // 2:
        assert time.monotonic() < deadline, first.output()
        time.sleep(0.05)
    first.kill()
    assert [rank.returncode for rank in first.ranks] == [-signal.SIGKILL] * 2, first.output()
    reached = checkpointer.steps()[-1]
    assert EPOCHS // 2 <= reached < EPOCHS

    output = Run(killed, data).wait()
    assert f"resumed after epoch {reached}" in output
    assert f"epoch {reached}/{EPOCHS}" not in output
    assert weights(killed) == weights(whole)


def test_a_single_process_outside_a_job(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "train.py"), "--epochs=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^epoch 1/1  train:loss=\d\.\d+  test:accuracy=0\.\d+$", done.stdout, re.MULTILINE)
    assert (tmp_path / "model" / "model.pt").is_file()
    assert Checkpointer(tmp_path / "checkpoints").steps() == [1]
