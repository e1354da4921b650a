"""A job in a control group with little memory, as under a scheduler: the report says that memory ran out."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup")
LIMIT = 300 << 20

ALLOCATES = "data = bytearray(1 << 30)\nfor place in range(0, len(data), 4096):\n    data[place] = 1\n"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with `LIMIT` bytes of memory."""
    parent, limit = GROUPS / "memory", "memory.limit_in_bytes"  # version 1
    if not parent.is_dir():
        parent, limit = GROUPS, "memory.max"
    folder = parent / f"cloudtrain-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"no control group can be made: {error}"
        pytest.skip("making a control group needs root")
    yield folder
    deadline = time.monotonic() + 60
    while (folder / "cgroup.procs").read_text():
        assert time.monotonic() < deadline, "processes of the job are left"
        time.sleep(0.05)
    folder.rmdir()


def test_a_rank_that_is_killed_for_its_memory(group: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALLOCATES)
    enter = f'echo $$ >{group}/cgroup.procs; exec "$0" -m cloudtrain submit train.py'
    done = subprocess.run(
        ["sh", "-c", enter, sys.executable], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 137, done.stderr
    assert "[out-of-memory]" in done.stdout + done.stderr
    assert "Use a smaller batch size" in done.stdout + done.stderr
