"""Jobs on a real Slurm of two nodes, from the queue to their end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import wait_until

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.platforms.slurm import SlurmPlatform

SCRIPT = """
import json, os, socket, sys
from cloudtrain import environment

print("seen", json.dumps(dict(os.environ)), flush=True)
print("long", os.environ["RANK"] * 5000, flush=True)
(environment.model_dir() / f"rank-{os.environ['RANK']}").write_text("a part")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slurm-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTRAIN_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def two_nodes(slurm_module: SlurmCluster, home: Path) -> Job:
    """A job on two nodes, submitted from inside another allocation."""
    script = home / "train.py"
    script.write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "SLURM_CPU_BIND",
            "SLURM_JOB_ID",
            "SBATCH_PARTITION",
            "PMIX_RANK",
            "OMPI_COMM_WORLD_RANK",
        ):
            patch.setenv(name, "1")
        patch.setenv("B_TOKEN", "hf_0ther")
        return Estimator(
            str(script),
            platform="slurm",
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            environment={"A_TOKEN": "hf_s3cret", "PLAIN": "shown"},
            secrets=["B_TOKEN"],
            platform_options={"gpus": 1, "cpus_per_task": 2, "prologue": ["env > seen-by-slurm"]},
            disable_output_compression=True,
        ).fit(job_name="two-nodes")


def seen(job: Job) -> dict[str, dict[str, str]]:
    """The environments of the ranks, by host."""
    lines = [line.partition("seen ")[2] for line in job.logs().splitlines() if "] seen " in line]
    environments = [json.loads(line) for line in lines]
    return {environment["SM_CURRENT_HOST"]: environment for environment in environments}


def test_the_job_runs_on_both_nodes(two_nodes: Job) -> None:
    described = two_nodes.describe()
    assert (described.status, described.platform) == (JobStatus.COMPLETED, "slurm")
    found = seen(two_nodes)
    assert sorted(found) == ["127.0.0.2", "127.0.0.3"]
    assert [found[name]["RANK"] for name in sorted(found)] == ["0", "1"]
    assert {one["A_TOKEN"] for one in found.values()} == {"hf_s3cret"}
    assert {one["CUDA_VISIBLE_DEVICES"] for one in found.values()} == {"0"}
    assert {one["SM_NUM_GPUS"] for one in found.values()} == {"1"}


def test_long_lines_of_several_nodes_stay_whole(two_nodes: Job) -> None:
    lines = two_nodes.logs().splitlines()
    for rank in ("0", "1"):
        assert f"[rank {rank}] long {rank * 5000}" in lines


def test_ranks_see_nothing_of_the_step(two_nodes: Job) -> None:
    for environment in seen(two_nodes).values():
        foreign = {name for name in environment if name.startswith(("SLURM", "PMI", "SBATCH"))}
        assert foreign <= {"SLURM_CONF"}
        assert environment["CLOUDTRAIN_SLURM_JOB_ID"].isdigit()


def test_the_log_names_the_variables_that_the_job_did_not_get(two_nodes: Job) -> None:
    first = two_nodes.logs().splitlines()[0]
    assert first.startswith("[cloudtrain] submitted from inside another job")
    assert first.endswith(": OMPI_COMM_WORLD_RANK, PMIX_RANK, SBATCH_PARTITION, SLURM_CPU_BIND, SLURM_JOB_ID")


def test_secrets_are_in_no_file(two_nodes: Job, home: Path) -> None:
    folder = home / "jobs" / "slurm" / "two-nodes"
    wait_until(lambda: not (folder / "secrets.json").exists(), "the end of the batch step")
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("job.log", "rank-0.log", "rank-1.log"):
            assert b"hf_s3cret" not in path.read_bytes(), path
    assert "B_TOKEN" not in (folder / "seen-by-slurm").read_text()
    assert all(environment["B_TOKEN"] for environment in seen(two_nodes).values())
    number = json.loads((folder / "batch.json").read_text())["submissions"][0]["number"]
    shown = subprocess.run(["scontrol", "show", "job", number], capture_output=True, text=True).stdout
    assert "two-nodes" in shown and "hf_s3cret" not in shown


def test_the_platform_lists_it(two_nodes: Job, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home))
    assert [job.name for job in SlurmPlatform().list()] == ["two-nodes"]
