"""A command whose output cannot be written says so in one line, and fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMANDS = [["list", "--json"], ["platforms"], ["--help"], ["describe", "missing", "--json"]]
FULL = "/dev/full"


def run(command: list[str], output: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cloudtrain", *command],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no device that is full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk(command: list[str]) -> None:
    with open(FULL, "w") as full:
        assert run(command, full.fileno()) == (
            1,
            "Error: the output cannot be written: No space left on device\n",
        )


def test_a_reader_that_is_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert run(["platforms"], writer) == (1, "")
    os.close(writer)


@pytest.mark.parametrize("command", [["list"], ["platforms"]])
def test_a_closed_output(command: list[str]) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "cloudtrain", *command]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
