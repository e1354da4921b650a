"""A test run that is killed leaves no process and no mount of its cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDERS = [
    str(HERE),
    str(HERE.parent / "slurm"),
    str(HERE.parent / "sagemaker_runtime"),
    str(HERE.parents[1]),
]

STARTS_AND_WAITS = f"""
import sys, time
sys.path[:0] = {FOLDERS}
from kube_cluster import KubeCluster
from kube_server import KubeServer

with KubeServer() as server, KubeCluster(server) as cluster:
    container = {{"name": "a", "image": "a", "command": ["sleep", "4242"]}}
    cluster.bench.create("pods", "default", {{"metadata": {{"name": "a"}}, "spec": {{"containers": [container]}}}})
    while "running" not in str(cluster.bench.get("pods", "default", "a")["status"]):
        time.sleep(0.1)
    print(server.folder, flush=True)
    time.sleep(600)
"""


def _processes(folder: str) -> list[str]:
    """Those of the cluster in ``folder``, and the container's."""
    done = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if folder in line or line == "sleep 4242"]


@pytest.mark.soak
@pytest.mark.usefixtures("kube_server")  # runs where there is one
def test_nothing_is_left_of_a_killed_test_run() -> None:
    run = subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, text=True)
    assert run.stdout
    folder = run.stdout.readline().strip()
    assert len(_processes(folder)) >= 4
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 30
    while (left := _processes(folder)) or Path(folder).exists():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert folder not in Path("/proc/self/mounts").read_text()
