"""A pod of an elastic training is evicted: all pods start again, and no step is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elastic_steps import SCRIPT, check_each_step_once
from kube_fixtures import Namespace
from kube_training import OUTPUTS, estimator

from cloudtrain.contract import JobStatus

pytest.importorskip("torch")

AGENT = {"torch_distributed": {"processes_per_host": 1, "max_restarts": 2}}

TEE = f"""
    import builtins

    def print(*values, flush):
        builtins.print(*values, flush=flush)
        with open("{OUTPUTS}/log", "a") as log:
            builtins.print("]", *values, file=log)
"""
"""The logs of pods go with them."""


@pytest.mark.soak  # the same without a scheduler: tests/integration/local/test_local_elastic_migration.py
@pytest.mark.parametrize("distribution", [{"processes": {"processes_per_host": 1}}, AGENT], ids="-".join)
@pytest.mark.parametrize("taken", [0, 1])
def test_a_pod_that_is_taken_back_loses_and_repeats_no_step(
    taken: int, distribution: dict[str, Any], kubernetes: Namespace, tmp_path: Path
) -> None:
    log = kubernetes.claim("outputs") / "log"
    job = estimator(
        tmp_path,
        TEE + SCRIPT,
        distribution=distribution,
        checkpoint_s3_uri=f"file://{OUTPUTS}/checkpoints",
        stop_grace=20,
    ).fit(job_name="moved", wait=False)
    kubernetes.wait_until(lambda: log.exists() and log.read_text().count("] step ") > 3, "steps", 240)
    kubernetes.cluster.preempt(kubernetes.name, kubernetes.pod(f"moved-{taken}")["metadata"]["name"])
    kubernetes.wait_until(lambda: job.status.is_final, "the end", 240)
    assert job.status == JobStatus.COMPLETED, job.logs()
    check_each_step_once(log.read_text())
