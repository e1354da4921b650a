"""A spare node of a job on Slurm takes the place of one that is lost, in the same allocation."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import number_of, submit, wait_for_end, wait_for_line, wait_until

from cloudtrain import JobStatus

SCRIPT = """
import os, time
place = (os.environ["RANK"], os.environ["SM_CURRENT_HOST"], os.environ["CLOUDTRAIN_ATTEMPT"], os.getppid())
print("begins", *place, flush=True)
time.sleep(600 if os.environ["CLOUDTRAIN_ATTEMPT"] == "0" else 1)
"""


@pytest.mark.parametrize(
    ("loss", "node", "places"),
    [
        ("down", "127.0.0.3", ["127.0.0.2", "127.0.0.4"]),
        ("paused", "127.0.0.2", ["127.0.0.4", "127.0.0.3"]),
        ("taken-back", "127.0.0.3", ["127.0.0.2", "127.0.0.4"]),
    ],
)
def test_a_spare_node_takes_a_place(
    slurm3: SlurmCluster, tmp_path: Path, loss: str, node: str, places: list[str]
) -> None:
    """Of a node that Slurm sets down, of the leader whose runtime does not answer, of one that gets SIGTERM."""
    job = submit(tmp_path, SCRIPT, f"spared-{loss}", spare_hosts=1, host_timeout=5, stop_grace=5)
    wait_for_line(job, "begins", 2)
    wait_for_line(job, "127.0.0.4 is a spare host: it is ready")
    number = number_of(job)
    [runtime] = re.findall(rf"begins \d {node} 0 (\d+)", job.logs())
    if loss == "down":
        slurm3.set_down(node)
    else:
        os.kill(int(runtime), signal.SIGSTOP if loss == "paused" else signal.SIGTERM)
    described = wait_for_end(job, 150).describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.details["spare hosts"] == f"127.0.0.4 takes the place of {node}"
    begun = dict(re.findall(r"begins (\d) (\S+) 1 ", job.logs()))
    assert [begun[rank] for rank in sorted(begun)] == places
    assert number_of(job) == number, "it did not go through the queue again"
    wait_until(lambda: not Path(f"/proc/{runtime}").exists(), "the end of the lost runtime")


@pytest.mark.parametrize(("loss", "node"), [("down", "127.0.0.3"), ("taken-back", "127.0.0.2")])
def test_a_job_continues_on_the_nodes_that_are_left(
    slurm3: SlurmCluster, tmp_path: Path, loss: str, node: str
) -> None:
    """Without a node that Slurm sets down; without the leader, which gets SIGTERM."""
    fields = {"nodes": 3, "min_instance_count": 2, "host_timeout": 5, "stop_grace": 5}
    job = submit(tmp_path, SCRIPT, f"fewer-{loss}", **fields)
    wait_for_line(job, "begins", 3)
    number = number_of(job)
    [runtime] = re.findall(rf"begins \d {node} 0 (\d+)", job.logs())
    if loss == "down":
        slurm3.set_down(node)
    else:
        os.kill(int(runtime), signal.SIGTERM)
    described = wait_for_end(job, 150).describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.details["dropped hosts"] == node
    begun = dict(re.findall(r"begins (\d) (\S+) 1 ", job.logs()))
    assert [begun[rank] for rank in sorted(begun)] == sorted({"127.0.0.2", "127.0.0.3", "127.0.0.4"} - {node})
    assert number_of(job) == number, "it did not go through the queue again"


CRASHES = """
import os, sys, time
print("begins", os.environ["RANK"], os.environ["CLOUDTRAIN_ATTEMPT"], flush=True)
if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.1)
    sys.exit(9)
"""


@pytest.mark.soak
def test_a_spare_node_that_slurm_sets_down_is_left_out(slurm3: SlurmCluster, tmp_path: Path) -> None:
    """The step of the next attempt would not start with it."""
    fields = {"spare_hosts": 1, "stop_grace": 5, "max_retry_attempts": 1}
    job = submit(tmp_path, CRASHES, "spare-down", environment={"GO": str(tmp_path / "go")}, **fields)
    wait_for_line(job, "begins", 2)
    wait_for_line(job, "127.0.0.4 is a spare host: it is ready")
    slurm3.set_down("127.0.0.4")
    wait_for_line(job, "the spare host 127.0.0.4 cannot take the place of another: host 127.0.0.4 was lost")
    (tmp_path / "go").touch()
    assert wait_for_end(job).status == JobStatus.COMPLETED, job.logs()
    assert "begins 0 1\n" in job.logs() and "begins 1 1\n" in job.logs()
