"""A container is lost with its memory: the runtime of another one commits its last copy."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import docker
import pytest
from container_jobs import jobs_in, wait_until
from engine_daemon import Engine

from cloudtrain import JobStatus

SCRIPT = """
    import os, time
    from cloudtrain.checkpoint import Checkpointer
    checkpointer = Checkpointer(every=100000, memory_every=1, save_at_end=False)
    checkpoint = checkpointer.restore()
    if checkpoint:
        print(os.environ["SM_CURRENT_HOST"], "resumed from", checkpoint.step, flush=True)
    for step in () if checkpoint else range(1, 21):
        time.sleep(0.05)
        checkpointer.maybe_save(step, {"weights": [float(step)] * 10})
    while not checkpoint:
        held = os.path.join(os.environ["CLOUDTRAIN_CHECKPOINT_MEMORY"], "held-algo-1")
        if any(b'"step": 20,' in open(f"{held}/{name}", "rb").read() for name in os.listdir(held) if "json" in name):
            print("holds the last copy", flush=True)
        time.sleep(0.1)
"""


@pytest.mark.soak  # the parts are in tests/integration/hosts
def test_a_lost_container_loses_no_step_that_was_copied(engine: Engine, tmp_path: Path) -> None:
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            SCRIPT,
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            max_retry_attempts=1,
            host_timeout=5,
            checkpoint_s3_uri=(tmp_path / "checkpoints").as_uri(),
        )
        wait_until(lambda: "holds the last copy" in job.logs() or job.status.is_final, "the copy")
        with closing(docker.DockerClient(base_url=engine.url)) as client:
            filters = {"label": [f"cloudtrain.job={job.name}"]}
            [first] = [one for one in client.containers.list(filters=filters) if one.name.endswith("algo-1")]
            first.kill()
        wait_until(lambda: job.status.is_final, "the end")
        assert job.status == JobStatus.COMPLETED, job.logs()
        assert "checkpoint 20, which was in the memory of this host, for algo-1, is committed" in job.logs()
        assert sorted(re.findall(r"(algo-\d) resumed from 20", job.logs())) == ["algo-1", "algo-2"]
