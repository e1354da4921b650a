"""A cap on the cost of a job on a real Slurm, which its batch step keeps: no client runs when it is reached."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from capped_jobs import SAVES, set_prices
from click.testing import CliRunner
from slurm_cluster import SlurmCluster
from slurm_jobs import job_folder, submit, wait_for_end, wait_until

from cloudtrain import JobStatus
from cloudtrain.cli import cli
from cloudtrain.runtime.supervisor.record import JobRecord


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_prices("slurm", tmp_path, monkeypatch)


def test_at_its_cap_a_job_saves_and_stops(slurm: SlurmCluster, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    options: dict[str, Any] = {
        "max_cost": 0.02,
        "max_retry_attempts": 2,
        "stop_grace": 20,
        "checkpoint_s3_uri": kept.as_uri(),
    }
    options["arguments"] = ["{checkpoint_dir}"]
    job = submit(tmp_path, SAVES, "capped", **options)
    state = job_folder(job) / "state.json"
    wait_until(lambda: JobStatus.STOPPED.value in state.read_text(), "its end, while no client looks")
    found = wait_for_end(job).describe()
    assert (found.status, found.attempt) == (JobStatus.STOPPED, 0)
    matched = re.fullmatch(
        r"the max_cost of 0\.02 EUR is reached: it cost ([\d.]+) EUR(?:, ([\d,.]+) s after the cap)?",
        found.reason,
    )
    assert matched, found.reason
    cost, late = float(matched[1]), float((matched[2] or "0").replace(",", ""))
    assert cost >= 0.018
    assert cost <= 0.02 * (1 + late / 12) * 1.1, "the cap pays for 12 s; the end took the rest"
    [row] = json.loads(CliRunner().invoke(cli, ["list", "--json"]).stdout)
    assert (row["cost"], row["currency"]) == (pytest.approx(cost, rel=0.2), "EUR")
    heading, line = CliRunner().invoke(cli, ["list"]).stdout.splitlines()[:2]
    assert line[heading.index("COST") :].split()[1] == "EUR"
    if "runs" not in job.logs():
        return  # on a slow machine, the ranks took longer to start than the cap pays for
    assert [*kept.rglob("saved-by-*")]
    [archive] = job.download(tmp_path / "got")
    assert archive.exists()


def test_a_job_that_waited_has_the_price_of_its_start(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "prices: {rows: [{platform: slurm, node_hour: 3}, {platform: slurm, node_hour: 30, since: 2026-02-01}]}"
    (tmp_path / "prices.yaml").write_text(table)
    for module in ("known", "terms"):
        monkeypatch.setattr(f"cloudtrain.cost.{module}.today", lambda: "2026-01-31")
    job = wait_for_end(submit(tmp_path, "print(1)", "waited"))
    [attempt] = [event for event in job.platform.events(job.name) if event["event"] == "attempt"]  # type: ignore[attr-defined]
    assert attempt["price"]["per_hour"] == 60
    record = JobRecord.from_json((job_folder(job) / "state.json").read_bytes())
    assert record.resumed_at is not None and record.ended_at is not None and record.cost is not None
    assert record.cost == pytest.approx((record.ended_at - record.resumed_at) * 60 / 3600)
    assert job.platform.cost(job.describe()).amount == record.cost  # type: ignore[attr-defined]
