"""hadolint reads the Dockerfile, ShellCheck what it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.images.catalogue import CONTAINERS


@pytest.mark.parametrize(
    ("linter", "files"),
    [("hadolint", ["Dockerfile"]), ("shellcheck", ["train", *sorted(os.listdir(CONTAINERS / "steps"))])],
)
def test_a_linter_finds_nothing(linter: str, files: list[str]) -> None:
    program = shutil.which(linter, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"there is no {linter}"
        pytest.skip(f"there is no {linter}")
    paths = [
        CONTAINERS / name if (CONTAINERS / name).exists() else CONTAINERS / "steps" / name for name in files
    ]
    done = subprocess.run([program, *paths], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
