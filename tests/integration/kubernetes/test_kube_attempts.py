"""Pods start again: their attempt takes over the checkpoints, although Kubernetes counts no attempts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_training import OUTPUTS, estimator

from cloudtrain.contract import JobStatus

SCRIPT = f"""
import json, os, time
from pathlib import Path
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError

identity, earlier = os.environ["CLOUDTRAIN_ATTEMPT_ID"], Path("{OUTPUTS}/earlier")
checkpointer = Checkpointer("{OUTPUTS}/checkpoints", asynchronous=False)
checkpoint = checkpointer.restore()
print("attempt", identity, "restored", checkpoint and checkpoint.step, flush=True)
Path(f"{OUTPUTS}/{{identity}}-{{os.environ['RANK']}}").touch()
while not all(Path(f"{OUTPUTS}/{{identity}}-{{rank}}").exists() for rank in (0, 1)):
    time.sleep(0.05)
if os.environ["RANK"] == "0":
    checkpointer.save(2 if checkpoint else 1, {{"weights": [1.0]}})
    if not checkpoint:
        earlier.write_text(json.dumps(dict(os.environ)))
        raise RuntimeError("fails once")
    os.environ.update(json.loads(earlier.read_text()))  # as if it were paused until now
    try:
        Checkpointer("{OUTPUTS}/checkpoints", asynchronous=False).save(3, {{"weights": [1.0]}})
    except CheckpointError as error:
        print("refused:", error.message, flush=True)
"""


@pytest.mark.soak  # the parts are in tests/integration/checkpoint and conformance
def test_a_restarted_attempt_takes_over(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    job = estimator(tmp_path, SCRIPT, max_retry_attempts=1).fit(job_name="fenced", wait=False)
    kubernetes.wait_until(lambda: job.status.is_final, "the end", 120)
    assert job.status == JobStatus.COMPLETED, job.logs()
    seen = re.findall(r"attempt (\w+) restored (\w+)", job.logs())
    assert sorted(step for _, step in seen) == ["1", "1", "None", "None"]
    assert len(set(seen)) == 2, "all ranks of an attempt have one identity"
    taken_over = "attempt 1 of this job has taken over from this one, attempt 0"
    assert f"refused: checkpoint 3 was not saved: {taken_over}" in job.logs()
