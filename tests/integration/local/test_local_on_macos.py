"""Jobs on macOS, as far as it can be played here: no /proc, no forked hosts, no parent-death signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from local_jobs import live_processes, wait_until
from systems.played import commands_on

from cloudtrain import Job
from cloudtrain.runtime.supervisor.folder import JobFolder

TRAIN = """
import os, sys
print("rank", os.environ["RANK"], "on", sys.platform, flush=True)
open(f"{os.environ['SM_MODEL_DIR']}/{os.environ['RANK']}", "w").close()
"""

LEAVES_A_PROCESS = """
import subprocess, time
subprocess.Popen(["sleep", "600"])
time.sleep(0.5)
raise ValueError("as asked")
"""


def test_jobs_end_as_on_linux(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "leaves.py").write_text(LEAVES_A_PROCESS)
    (tmp_path / "train.sh").write_text('echo "✓ $(basename "$0")"; exit 7\n', encoding="utf-8")
    trained, failed, shell, downloaded = commands_on(
        "darwin",
        ["submit", "train.py", "--name", "trained", "--instance-count", "2", "--processes-per-host", "2"],
        ["submit", "leaves.py", "--name", "failed", "--processes-per-host", "1"],
        ["submit", "train.sh", "--name", "shell"],
        ["download", "trained"],
        cwd=tmp_path,
    )
    assert trained.code == 0, trained.err
    assert {line for line in trained.out.splitlines() if "rank 3" in line} == {"[rank 3] rank 3 on darwin"}
    assert downloaded.code == 0
    assert failed.code == 1
    assert "raised ValueError: as asked" in failed.err
    assert shell.code == 7, shell.err
    for name in ("trained", "failed", "shell"):
        job = Job.attach(name)
        wait_until(lambda job=job: not live_processes(job), "the end of all its processes")

    console = {**os.environ, "PYTHONIOENCODING": "cp1252:strict"}  # of Windows, without a check mark
    program = [sys.executable, "-m", "cloudtrain", "logs", "shell"]
    printed = subprocess.run(program, env=console, capture_output=True, check=True).stdout
    assert printed.splitlines()[0] == b"[rank 0] \\u2713 train.sh"


def test_everything_ends_with_the_supervisor(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; print('begins', flush=True); time.sleep(600)")
    (tmp_path / "train.sh").write_text("echo begins; exec sleep 600\n")
    for script in ("train.py", "train.sh"):
        name = script.replace(".", "-")
        (submitted,) = commands_on("darwin", ["submit", script, "--name", name, "--no-wait"], cwd=tmp_path)
        assert submitted.code == 0, submitted.err
        job, folder = Job.attach(name), JobFolder.of("local", name)
        wait_until(lambda job=job: "begins" in job.logs(), "its output")
        pid = folder.read_record().pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda job=job: not live_processes(job), "the end of all its processes")
