"""A cap on the cost of a job in containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_jobs import jobs_in, wait_for_end
from engine_daemon import Engine

from cloudtrain import JobStatus

SAVES = """
    import os, signal, sys, time
    def save(*_):
        open(os.environ["SM_MODEL_DIR"] + "/saved", "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    time.sleep(300)
"""


def test_at_its_cap_a_job_in_containers_saves_and_stops(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("prices: {rows: [{platform: container, node_hour: 1.2}]}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    with jobs_in(engine, tmp_path) as jobs:
        job = wait_for_end(jobs.start(SAVES, max_cost=0.01, stop_grace=30))
        found = job.describe()
        assert found.status == JobStatus.STOPPED
        assert found.reason.startswith("the max_cost of 0.01 USD is reached: it cost 0.0")
        cost = job.platform.cost(found)  # type: ignore[attr-defined]
        assert 0.009 <= cost.amount < 0.01 * (30 + 300) / 30
        if "runs" not in job.logs():
            return  # on a slow machine, the container took longer to start than the cap pays for
        [archive] = job.download(tmp_path / "got")
        assert archive.name == "model.tar.gz"
