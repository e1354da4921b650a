"""A PyTorch that is too old is refused with its version and place, under both names of the API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cloudtrain

PACKAGE = Path(cloudtrain.__file__).parent


@pytest.mark.parametrize("module", ["cloudtrain.distributed.torch", "horovod.torch"])
def test_an_old_torch_is_refused(module: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '1.13.1+cpu'\n")
    paths = [tmp_path, PACKAGE.parent, PACKAGE / "alias"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {[str(path) for path in paths]}; import {module}",
        ],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: cloudtrain.distributed.torch needs PyTorch 2.4 or newer, and this is 1.13.1+cpu "
        f"(in {tmp_path / 'torch'})"
    )
