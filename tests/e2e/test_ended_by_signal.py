"""A signal that ends ``cloudtrain submit`` while it packs leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import CLOUDTRAIN

from cloudtrain.packaging.cache import archives_home
from cloudtrain.storage.atomic import TEMPORARY


def temporaries() -> list[Path]:
    return list(archives_home().glob(f"{TEMPORARY}*"))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_no_temporary_archive_is_left(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text("")
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(1 << 28)  # takes a second to compress, and no space
    command = [CLOUDTRAIN, "submit", "train.py", "--source-dir", "."]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # below nohup, SIGHUP is ignored
    ) as process:
        while not temporaries():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert said == "Interrupted: nothing was submitted.\n"
    assert process.returncode == -number, said
    assert temporaries() == []
    assert [entry for entry in os.listdir(archives_home()) if entry != "index"] == []
