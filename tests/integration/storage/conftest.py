from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

MakeDisk = Callable[[str], Path]


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Mounts a real file system of a given size, such as ``1m``, for the duration of the test."""
    with ExitStack() as mounted:

        def make(size: str) -> Path:
            folder = tmp_path / "disk"
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
                    pytest.fail(f"mount: {done.stderr}")
                pytest.skip(f"mount needs root: {done.stderr}")
            mounted.callback(subprocess.run, ["umount", str(folder)], check=True)
            return folder

        yield make
