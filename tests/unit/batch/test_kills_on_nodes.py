"""The lines of Slurm about processes that were killed for their use of memory, and the report that they make."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.start.messages import FrameReader, NodeJob
from cloudtrain.runtime.supervisor.node_hosts import NodeHost, NodePrograms

NODES = ["node-1", "node-2"]
NAMED = [
    "srun: error: node-2: task 1: Out Of Memory",
    "slurmstepd-node-2: error: StepId=3.0 exceeded memory limit (1297408000 > 1048576000), being killed",
]
UNNAMED = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd: error: Detected 1 oom-kill event(s) in step 11.0 cgroup. Some of your processes may have been killed "
    "by the cgroup out-of-memory handler.",
    "slurmstepd: error: Step 11.0 exceeded memory limit (10 > 5), being killed",
]


@pytest.mark.parametrize("line", NAMED + UNNAMED)
def test_lines_about_memory(line: str) -> None:
    reader = FrameReader(lambda _, message: None)
    assert b"".join(reader.read(f"{line}\n".encode())) == f"{line}\n".encode()
    assert reader.memory_kills == [line]


@pytest.mark.parametrize(
    "line", ["srun: error: node-2: task 1: Killed", "Out Of Memory", "\x0210oError: oom_kill event"]
)
def test_other_lines(line: str) -> None:
    reader = FrameReader(lambda _, message: None)
    list(reader.read(f"{line}\n".encode()))
    assert not reader.memory_kills


@pytest.mark.parametrize(
    ("lines", "host"),
    [(UNNAMED[:1], "node-1"), (UNNAMED[:1] + NAMED[:1], "node-2"), (NAMED[1:], "node-2"), ([], "node-1")],
)
def test_the_host_whose_processes_were_killed(lines: list[str], host: str, tmp_path: Path) -> None:
    """Slurm kills all tasks of the step, so the nodes report nothing."""
    script = "".join(f"echo '{line}'; " for line in lines) + "exit 137"
    log = os.open(tmp_path / "job.log", os.O_WRONLY | os.O_CREAT)
    job = NodeJob(NODES, {}, {}, "lo")
    programs = NodePrograms(["sh", "-c", script], job, log)
    os.close(log)
    first = NodeHost(programs, 0, is_spare=False)
    deadline = time.monotonic() + 120
    while first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    report = first.lost("node-1")
    programs.close()
    wanted = FailureClass.OUT_OF_MEMORY if lines else FailureClass.HOST_LOST
    assert (report.failure_class, report.host) == (wanted, host)


def test_a_node_that_is_taken_out_of_the_job_loses_its_spare_host(tmp_path: Path) -> None:
    script = "echo 'srun: error: Node failure on node-[2-3]'; sleep 600"
    log = os.open(tmp_path / "job.log", os.O_WRONLY | os.O_CREAT)
    programs = NodePrograms(["sh", "-c", script], NodeJob([*NODES, "node-3"], {}, {}, "lo"), log)
    os.close(log)
    spare = NodeHost(programs, 2, is_spare=True)
    try:
        deadline = time.monotonic() + 120
        while spare.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        report = spare.lost("node-3")
        assert report
        assert report.message == "host node-3 was lost: the scheduler has lost its node: see job.log"
        assert not programs.has_lost(0)
        assert NodeHost(programs, 1, is_spare=False).poll() is None, (
            "the leader decides about a host with a place"
        )
    finally:
        programs.close()
