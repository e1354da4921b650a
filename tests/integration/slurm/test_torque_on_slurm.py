"""Torque's dialect against a real scheduler: Slurm with the commands qsub, qstat and qdel for users of Torque."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError, TrainingFailed
from cloudtrain.platforms.pbs import TorquePlatform

pytestmark = pytest.mark.proof("Torque's commands", real="those of Slurm 22.05.8")

SCRIPT = """
import os, sys, time
from cloudtrain import environment

names = ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "A_TOKEN", "CUDA_VISIBLE_DEVICES")
print("seen", *(os.environ.get(name) for name in names), flush=True)
foreign = [name for name in os.environ if name.startswith(("SLURM_", "PBS_")) and name != "SLURM_CONF"]
print("foreign", foreign, flush=True)
if "--fail" in sys.argv:
    raise ValueError("as asked")
if "--sleep" in sys.argv:
    time.sleep(600)
(environment.model_dir() / os.environ["RANK"]).write_text("a part")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not shutil.which("qsub"):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no qsub"
        pytest.skip("needs slurm-wlm-torque")
    folder = tmp_path_factory.mktemp("torque")
    (folder / "train.py").write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTRAIN_HOME", str(folder / "home"))
        yield folder


def submit(home: Path, name: str, *arguments: str, wait: bool = True, **options: Any) -> Job:
    return Estimator(
        str(home / "train.py"),
        platform="torque",
        arguments=list(arguments),
        instance_count=2,
        max_run=1200,
        distribution={"processes": {"processes_per_host": 1}},
        environment={"A_TOKEN": "hf_s3cret"},
        platform_options={"cpus": 2, "gpus": 1, **options},
        disable_output_compression=True,
    ).fit(job_name=name, wait=wait)


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_job_on_two_nodes(slurm_module: SlurmCluster, home: Path) -> None:
    job = submit(home, "two-nodes")
    described = job.describe()
    assert (described.status, described.platform) == (JobStatus.COMPLETED, "torque")
    lines = job.logs().splitlines()
    for rank, host in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"[rank {rank}] seen {rank} 2 {host} hf_s3cret 0" in lines
        assert f"[rank {rank}] foreign []" in lines
    [model] = job.download(home / "downloaded")
    assert {path.name for path in model.iterdir()} == {"0", "1"}
    folder = Path(described.place)
    [submission] = json.loads((folder / "batch.json").read_text())["submissions"]
    number = submission["number"]
    shown = slurm_module("scontrol", "show", "job", number)
    assert "TimeLimit=00:24:00" in shown and "NumNodes=2" in shown and "hf_s3cret" not in shown
    script = (folder / "job.sh").read_text()
    assert "#PBS -l nodes=2:ppn=2:gpus=1\n" in script and "hf_s3cret" not in script
    assert [found.name for found in TorquePlatform().list()] == ["two-nodes"]


def test_the_report_is_the_same_as_elsewhere(slurm_module: SlurmCluster, home: Path) -> None:
    with pytest.raises(TrainingFailed) as caught:
        submit(home, "failing", "--fail")
    assert (caught.value.failure.exception_type, caught.value.failure.message) == ("ValueError", "as asked")


def test_a_folder_that_slurm_reads_as_a_pattern(
    slurm_module: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home / "100%j" / "a\\b"))
    assert submit(home, "pattern").status == JobStatus.COMPLETED


def test_stops_in_the_queue_and_while_it_runs(slurm_module: SlurmCluster, home: Path) -> None:
    running = submit(home, "running", "--sleep", wait=False, cpus=8)
    wait_until(lambda: "seen" in running.logs())
    waiting = submit(home, "waiting", wait=False, cpus=8)
    states = TorquePlatform().states("waiting")
    assert (states[-1].name, states[-1].message) == ("Pending", "it waits for resources")
    waiting.stop()
    assert waiting.wait().describe().status == JobStatus.STOPPED
    running.stop()
    described = running.wait().describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "stopped by the user")


@pytest.mark.parametrize("answer", ["{qstat} -f | head -n 3", ":"], ids=["a-part", "nothing"])
def test_a_part_of_an_answer_ends_no_job(
    answer: str, slurm_module: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(home, f"lives-{len(answer)}", "--sleep", wait=False)
    wait_until(lambda: "seen" in job.logs())
    real, calls = shutil.which("qstat"), tmp_path / "calls"
    (tmp_path / "qstat").write_text(
        f'#!/bin/sh\n[ $# -gt 1 ] && exec {real} "$@"\necho call >> {calls}\n{answer.format(qstat=real)}\n'
    )
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    wait_until(lambda: TorquePlatform().describe(job.name) and calls.exists())
    assert TorquePlatform().describe(job.name).status == JobStatus.RUNNING
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


def test_a_stop_reaches_a_job_that_was_taken_for_dead(slurm_module: SlurmCluster, home: Path) -> None:
    job = submit(home, "taken-for-dead", "--sleep", wait=False)
    wait_until(lambda: "seen" in job.logs())
    state = Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "torque", job.name, "state.json")
    state.write_text(state.read_text().replace('"Running"', '"Failed"'))
    job.stop()
    wait_until(lambda: job.status == JobStatus.STOPPED)
    wait_until(lambda: job.name not in slurm_module("squeue", "--noheader", "--format=%j"))


def test_a_job_that_is_refused_leaves_nothing(slurm_module: SlurmCluster, home: Path) -> None:
    with pytest.raises(PlatformError, match=r"Torque does not take the job: .*invalid partition"):
        submit(home, "refused", queue="nowhere")
    assert not list(home.rglob("refused"))
