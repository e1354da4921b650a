"""Real training on two nodes of a cluster, by mpirun and by torchrun, to the accuracy of the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import number_of

from cloudtrain import Estimator, JobStatus

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_pytorch"
DIGITS = 1437
"""The size of the training set."""


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "per_node"), [("mpi", 1), ("mpi", 2), ("torch_distributed", 2)])
def test_digits_on_two_nodes(slurm: SlurmCluster, tmp_path: Path, kind: str, per_node: int) -> None:
    data, out = (tmp_path / "data").as_uri(), (tmp_path / "out").as_uri()
    subprocess.run([sys.executable, str(EXAMPLE / "prepare.py"), data], check=True)
    job = Estimator(
        "train.py",
        source_dir=str(EXAMPLE),
        platform="slurm",
        instance_count=2,
        distribution={kind: {"processes_per_host": per_node}},
        hyperparameters={"epochs": 10},
        output_path=out,
        platform_options={"cpus_per_task": 2},
        metric_definitions=[{"Name": "accuracy", "Regex": "test:accuracy=([0-9.]+)"}],
    ).fit({"train": data}, job_name="digits", logs=False)
    described, log, ranks = job.describe(), job.logs(), 2 * per_node
    assert (described.status, described.failure, described.exit_code) == (JobStatus.COMPLETED, None, 0), log
    assert described.metrics["accuracy"] > 0.95
    said = sorted(re.findall(r"^\[rank (\d)\] rank (\d) of (\d) trains on (\d+)", log, re.MULTILINE))
    assert said == [(str(rank), str(rank), str(ranks), str(DIGITS // ranks)) for rank in range(ranks)]
    assert (tmp_path / "out" / "digits" / "output" / "model.tar.gz").stat().st_size > 10_000
    assert slurm.wait(number_of(job)) == "COMPLETED"
