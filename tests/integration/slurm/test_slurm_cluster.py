"""The clusters of these tests: they run jobs, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf

STARTS_AND_WAITS = f"""
import os, sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]}
from slurm_cluster import Configuration, SlurmCluster
with SlurmCluster(Configuration(nodes=1, gpus=0)) as cluster:
    number = cluster.submit("setsid sleep 4242 & echo started; sleep 4242")
    cluster.wait(number, "RUNNING")
    if os.getuid() == 0:
        (cluster.small_disk(1) / "file").touch()
    while "started" not in cluster.output(number):
        time.sleep(0.05)
    print(cluster.folder, flush=True)
    time.sleep(600)
"""


def processes_of(folder: str) -> list[int]:
    """The processes that SLURM_CONF leads to the cluster in ``folder``: its daemons, and its jobs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_job_on_all_nodes_finds_its_gpus(slurm: SlurmCluster) -> None:
    number = slurm.submit("srun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'", "-N2", "--gres=gpu:2")
    assert slurm.wait(number) == "COMPLETED"
    assert sorted(slurm.output(number).split()) == ["0,1", "0,1", "127.0.0.2", "127.0.0.3"]


def test_clusters_side_by_side_and_accounting(slurm_of: SlurmOf) -> None:
    first, second = slurm_of(Configuration(nodes=1)), slurm_of(Configuration(accounting=True))
    assert (
        subprocess.check_output(["sinfo", "-h", "-o", "%D"], text=True).strip() == "2"
    )  # the last one leads
    number = second.submit("exit 7")
    assert second.wait(number) == "FAILED"
    assert first.jobs() == {}
    deadline = time.monotonic() + 120
    while not (
        line := second("sacct", "-X", "-n", "-P", "-j", str(number), "-o", "JobID,State,ExitCode")
    ).endswith("|FAILED|7:0"):
        assert time.monotonic() < deadline, line
        time.sleep(0.2)


def test_reset_brings_everything_back(slurm: SlurmCluster) -> None:
    number = slurm.submit("sleep 600", "-N2", "--no-requeue")
    slurm.wait(number, "RUNNING")
    slurm.set_down("127.0.0.3")
    assert slurm.wait(number) == "NODE_FAIL"
    slurm.submit("sleep 600", "-N2")
    slurm.kill_node("127.0.0.2")
    slurm.stop_controller()
    slurm.reset()
    assert slurm.wait(slurm.submit("srun true", "-N2")) == "COMPLETED"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_killed_test_run(slurm_clusters: SlurmOf, number: int) -> None:
    slurm_clusters(Configuration())  # skips where Slurm is missing
    program = subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, text=True)
    assert program.stdout
    folder = program.stdout.readline().strip()
    assert len(processes_of(folder)) > 4
    os.kill(program.pid, number)
    program.communicate()
    deadline = time.monotonic() + 60
    while processes_of(folder) or Path(folder).exists() or folder in Path("/proc/mounts").read_text():
        assert time.monotonic() < deadline, f"left: {processes_of(folder)}"
        time.sleep(0.05)
