"""The zipapp as process 1 of a container: it executes the runtime, which receives signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.packaging import pack_runtime


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A job whose script writes a file."""
    paths = Paths(tmp_path / "ml")
    paths.make()
    (paths.code / "train.py").write_text("import os; open(os.environ['SM_MODEL_DIR'] + '/ran', 'w')")
    (paths.input_config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    return paths


def start(tmp_path: Path, paths: Paths, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, str(pack_runtime(tmp_path / "cache").path)],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(paths.base), "TMPDIR": str(tmp_path)},
        **options,
    )


def test_the_zipapp_runs_the_job_in_the_same_process(tmp_path: Path, paths: Paths) -> None:
    process = start(tmp_path, paths)
    assert process.wait(60) == 0
    assert (paths.model / "ran").exists()
    events = [json.loads(line) for line in (paths.output / "events.jsonl").read_text().splitlines()]
    assert events[0]["pid"] == process.pid


def test_a_stop_before_the_runtime_handles_signals_is_not_lost(tmp_path: Path, paths: Paths) -> None:
    """SIGTERM is pending when Python starts. Unless it is blocked, the kernel discards it, or kills the process."""

    def send() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    process = start(tmp_path, paths, preexec_fn=send)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not (paths.model / "ran").exists()


def test_modules_in_the_working_folder_do_not_shadow_pythons(tmp_path: Path, paths: Paths) -> None:
    image = tmp_path / "workdir of the image"
    image.mkdir()
    (image / "json.py").write_text("raise SystemExit('the wrong json')")
    assert start(tmp_path, paths, cwd=image).wait(60) == 0
    assert (paths.model / "ran").exists()
