"""``cloudtrain.log`` on file systems that fail, hang, or have no locks: with strace(1), which injects the errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.observe.heartbeat import VARIABLE
from cloudtrain.observe.metric_log import metrics_path
from cloudtrain.observe.progress import VARIABLE as EVENTS

SCRIPT = """
import atexit, time
import cloudtrain

@atexit.register
def show_the_end():
    print(longest, time.perf_counter() - ended)

longest = 0.0
for step in range(200):
    began = time.perf_counter()
    cloudtrain.log(step=step, total_steps=200, loss=1.0)
    longest = max(longest, time.perf_counter() - began)
    time.sleep(0.01)
ended = time.perf_counter()
"""


def run(folder: Path, *inject: str) -> tuple[list[float], str, list[int]]:
    """Run the script with these injections for all files of the job.

    Returns the seconds of the longest call and of the end of the script, the errors that it printed, and the steps
    that it wrote.
    """
    beat, events = folder / "beat", folder / "events"
    path = Path(metrics_path(str(beat)))
    options = [word for name in (beat, events, path) for word in ("-P", str(name))]
    options += [word for one in inject for word in ("-e", f"inject={one}")]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), VARIABLE: str(beat), EVENTS: str(events)}
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *options, sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = path.read_text().splitlines() if path.is_file() else []
    errors = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("strace: "))
    return (
        [*map(float, done.stdout.split())],
        errors,
        [step for line in lines for step in json.loads(line)[3]],
    )


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT", "ESTALE", "EROFS"])
def test_a_file_system_that_fails_is_reported_once(tmp_path: Path, error: str) -> None:
    [longest, _], errors, steps = run(tmp_path, f"%file,%desc:error={error}")
    assert longest < 30
    assert steps == []
    assert [line.partition(": ")[0] for line in errors.splitlines()] == [
        "[cloudtrain] metrics of cloudtrain.log() cannot be written, and wait",
        "[cloudtrain] metrics of cloudtrain.log() are lost",
    ]


def test_a_file_system_that_fails_for_a_while_loses_nothing(tmp_path: Path) -> None:
    _, _, steps = run(tmp_path, "write:error=EIO:when=1..2")
    assert steps == list(range(200))


def test_a_file_system_that_hangs_delays_neither_a_call_nor_the_end(tmp_path: Path) -> None:
    [longest, end], errors, _ = run(tmp_path, "write:delay_enter=10000000")
    assert longest < 4.5
    assert end < 9.5  # the disk takes ten seconds
    assert errors.endswith("metrics of cloudtrain.log() are lost: the disk does not respond")


def test_a_slow_file_system_delays_no_call(tmp_path: Path) -> None:
    [longest, _], errors, steps = run(tmp_path, "write:delay_enter=2000000")
    assert longest < 1.9
    assert errors == ""
    assert steps == list(range(200))


def test_neither_locks_nor_maps_are_needed(tmp_path: Path) -> None:
    _, errors, steps = run(tmp_path, "mmap,flock,fcntl,rename,fsync:error=ENOSYS")
    assert errors == ""
    assert steps == list(range(200))
