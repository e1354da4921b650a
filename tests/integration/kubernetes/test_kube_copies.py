"""A node is lost with the memory of its pod: the training continues from the copy in the memory of another pod."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_nodes import Node
from kube_training import OUTPUTS, estimator

from cloudtrain.contract import JobStatus

SCRIPT = f"""
import os, time
import numpy as np
from cloudtrain.checkpoint import Checkpointer

checkpointer = Checkpointer("{OUTPUTS}/run", every=1_000_000, memory_every=1, save_at_end=False)
checkpoint = checkpointer.restore()
step, weights = 0, np.zeros(1000)
if checkpoint:
    step, weights = checkpoint.step, checkpoint.state["weights"]
    print("resumed from", step, "in", checkpoint.source, flush=True)
while not os.path.exists("{OUTPUTS}/enough"):
    step += 1
    weights += step
    time.sleep(0.05)
    checkpointer.maybe_save(step, {{"weights": weights}})
    if step % 20 == 0:
        print("step", step, flush=True)
assert set(weights) == {{step * (step + 1) / 2}}
"""


@pytest.mark.soak  # on processes and machines: tests/integration/hosts/test_hosts_copies.py
def test_a_lost_node_loses_no_more_than_the_steps_since_the_last_copy(
    kubernetes: Namespace, tmp_path: Path
) -> None:
    kubernetes.cluster.add_node(Node("node-3"))
    outputs = kubernetes.claim("outputs")
    job = estimator(tmp_path, SCRIPT, instance_count=2, host_timeout=5, options={"cpu": "20"}).fit(
        job_name="copies", wait=False
    )
    kubernetes.wait_for_line("copies-0", "step 60", 120)
    node = kubernetes.pod("copies-0")["spec"]["nodeName"]
    kubernetes.cluster.lose_node(node)
    kubernetes.cluster.give_up_node(node)
    kubernetes.wait_for_line("copies-1", "for copies-0, is committed", 120)
    kubernetes.wait_for_line("copies-0", "resumed from", 240)
    (outputs / "enough").touch()
    kubernetes.wait_until(lambda: job.status.is_final, "the end", 120)
    assert job.status == JobStatus.COMPLETED, job.logs()
    log = kubernetes.log("copies-0")
    [(step, source)] = re.findall(r"resumed from (\d+) in (.*)", log)
    assert int(step) >= 1 and source.startswith(("the memory of this host", "file:")), log
