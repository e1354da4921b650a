"""A cap on the cost of a job on a cluster, which its leader keeps: no client runs when it is reached."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from capped_jobs import SAVES, set_prices
from click.testing import CliRunner
from kube_fixtures import Namespace
from kube_training import estimator

from cloudtrain import Job
from cloudtrain.cli import cli
from cloudtrain.contract import JobStatus


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_prices("kubernetes", tmp_path, monkeypatch)


def test_at_its_cap_a_job_saves_uploads_and_stops(kubernetes: Namespace, tmp_path: Path) -> None:
    outputs = kubernetes.claim("outputs")
    job = estimator(
        tmp_path,
        SAVES,
        max_cost=0.01,
        max_retry_attempts=2,
        stop_grace=20,
        checkpoint_s3_uri="file:///outputs/kept",
        arguments=["/opt/ml/checkpoints"],
    ).fit(job_name="capped", wait=False)
    archive = outputs / "out/capped/output/model.tar.gz"
    kubernetes.wait_until(archive.exists, "the model, while no client looks")
    job = Job.attach("capped")
    with pytest.warns(UserWarning, match="Stopped, not Completed"):
        job.wait(timeout=60)
    found = job.describe()
    assert found.status == JobStatus.STOPPED
    assert found.failure is not None and found.failure.message == "the max_cost of 0.01 EUR is reached"
    with tarfile.open(archive) as model:
        assert any("saved-by-" in name for name in model.getnames())
    assert [*(outputs / "kept").rglob("saved-by-*")]
    shown = json.loads(CliRunner().invoke(cli, ["describe", "capped", "--json"]).stdout)
    assert (shown["currency"], shown["cap"]) == ("EUR", "max_cost of 0.01 EUR")
    assert 0.008 <= shown["cost"] < 0.01 * (6 + 20 + 400) / 6
