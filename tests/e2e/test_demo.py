"""scripts/demo resumes after Ctrl-C and after SIGKILL, and ends with a model.

CI runs it when it has changed, or what it names. tests/integration/checkpoint kills trainings in every run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documents import REPOSITORY, band_of
from pages import PASSED, lock_line, parametrize_pages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "page", ["scripts/demo"])


class Demo:
    """``scripts/demo`` in a copy of the repository, in the environment that runs the tests."""

    def __init__(self, folder: Path) -> None:
        for name in ("scripts", "examples"):
            shutil.copytree(REPOSITORY / name, folder / name)
        self.folder = folder
        self.home = folder / ".demo"

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["./scripts/demo"],
            cwd=self.folder,
            env={**os.environ, "CLOUDTRAIN_VENV": sys.prefix},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> set[int]:
        """All processes of the demo: job, ranks, the S3 server, commands."""
        mark = f"\0CLOUDTRAIN_HOME={self.home}\0".encode()
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in b"\0" + (folder / "environ").read_bytes():
                    found.add(int(folder.name))
        return found

    def kill_everything(self) -> None:
        deadline = time.monotonic() + 60
        while found := self.processes():
            assert time.monotonic() < deadline, f"{found} cannot be killed"
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.kill_everything()


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"the demo ended before it said {text!r}:\n{seen}")


@pytest.mark.timeout(400)
def test_interrupted_killed_and_started_again_it_resumes(
    page: str, demo: Demo, record_property: Callable[[str, object], None]
) -> None:
    first = demo.start()
    _read_until(first, "epoch 2/")
    os.killpg(first.pid, signal.SIGINT)
    rest, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "To resume it: ./scripts/demo" in rest

    second = demo.start()
    seen = _read_until(second, "epoch 5/")
    assert "Attaching to it" in seen
    demo.kill_everything()
    second.communicate(timeout=60)

    third = demo.start()
    seen, _ = third.communicate(timeout=200)
    assert third.returncode == 0, seen
    assert "resumes from its last checkpoint" in seen
    resumed = re.search(r"resumed after epoch (\d+) from s3://demo/", seen)
    assert resumed and int(resumed[1]) >= 4, seen
    accuracy = re.search(r"^test:accuracy +([0-9.]+)\b", seen, re.MULTILINE)
    low, high = band_of("digits_pytorch")
    assert accuracy and low <= float(accuracy[1]) <= high, seen
    assert re.search(r"^model +s3://demo/jobs/\S+/model.tar.gz$", seen, re.MULTILINE)

    assert not (demo.home / "unfinished").exists(), "the next demo is a fresh run"
    deadline = time.monotonic() + 60
    while left := demo.processes():  # the supervisor ends a moment after its job
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    logs = re.search(r"CLOUDTRAIN_HOME=.* logs demo-.*", seen)
    assert logs, seen
    shown = subprocess.run(["bash", "-c", logs[0]], capture_output=True, text=True, check=True, timeout=60)
    assert "trained 10 epochs" in shown.stdout
    record_property(PASSED, lock_line(page))
