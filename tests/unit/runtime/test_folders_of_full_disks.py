"""The folders whose disks a failure may have filled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.runtime.diagnose.machine_faults import writable_folders

PROGRAM = """
import resource, signal
from cloudtrain.runtime.diagnose.machine_faults import writable_folders
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(writable_folders("base")[1])
"""
"""No file can be written, as on a full disk. A pipe can."""


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_the_folder_for_temporary_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(other, raising=False)
    assert writable_folders("base") == ("base", "/tmp")
    monkeypatch.setenv(name, "/scratch")
    assert writable_folders("base") == ("base", "/scratch")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_full_folders_are_named(tmp_path: Path) -> None:
    """Python's search for a folder for temporary files finds none, or another."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path), done.stderr
