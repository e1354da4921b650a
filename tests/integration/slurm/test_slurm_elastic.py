"""Slurm takes the hosts of an elastic training back, with its own signals: no step is lost or repeated."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from elastic_steps import SCRIPT, check_each_step_once
from slurm_cluster import SlurmCluster
from test_slurm_continues import wait_until

from cloudtrain import Estimator
from cloudtrain.contract import JobStatus

pytest.importorskip("torch")

AGENT = {"torch_distributed": {"processes_per_host": 1, "max_restarts": 2}}


@pytest.mark.soak  # the same without a scheduler: tests/integration/local/test_local_elastic_migration.py
@pytest.mark.parametrize("distribution", [{"processes": {"processes_per_host": 1}}, AGENT], ids="-".join)
@pytest.mark.parametrize("mode", ["cancels", "requeues"])
def test_a_preemption_loses_and_repeats_no_step(
    mode: str,
    distribution: dict[str, Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster: SlurmCluster = request.getfixturevalue(f"slurm_{mode}")
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    job = Estimator(
        str(tmp_path / "train.py"),
        platform="slurm",
        instance_count=2,
        distribution=distribution,
        platform_options={"partition": "main", "exclusive": True, "poll_seconds": 1},
        stop_grace=20,
    ).fit(wait=False, job_name="moved")
    wait_until(lambda: job.logs().count("] step ") > 3, 240)
    urgent = cluster.submit("sleep 1", "-N2", "--exclusive", "-purgent")
    job.wait()
    assert job.describe().status == JobStatus.COMPLETED, job.logs()
    assert job.describe().attempt == 1
    check_each_step_once(job.logs())
    assert cluster.state(urgent) == "COMPLETED"
