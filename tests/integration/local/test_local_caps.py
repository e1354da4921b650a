"""Caps on the cost of a job, kept by its supervisor, on real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from local_jobs import Run, wait_until
from stepped_clock import write_clock

from cloudtrain import JobStatus
from cloudtrain.cli import cli
from cloudtrain.history import ends
from cloudtrain.runtime.supervisor.folder import JobFolder

TRAINS = """
    import os, signal, sys, time
    saved = os.environ["SM_MODEL_DIR"] + "/saved"
    def save(*_):
        time.sleep({upload})
        open(saved, "w").write("a checkpoint")
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("on", flush=True)
    {then}
    time.sleep(300)
"""
GRACE = 60.0


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of this machine costs 0.6 EUR: 6 seconds cost a thousandth."""
    path = tmp_path / "prices.yaml"
    path.write_text("prices: {currency: EUR, date: 2026-10-01, rows: [{platform: local, node_hour: 0.6}]}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))


def test_at_its_cap_a_job_saves_and_stops(run: Run) -> None:
    began = time.monotonic()
    job = run(TRAINS.format(upload=1, then=""), max_cost=0.001, stop_grace=GRACE)
    found = job.describe()
    assert "saved" in job.logs()
    assert found.status == JobStatus.STOPPED
    told = re.fullmatch(
        r"the max_cost of 0\.001 EUR is reached: it cost (\S+) EUR, (\S+) s after the cap", found.reason
    )
    assert told, found.reason
    assert 0.001 <= float(told[1]) < 0.001 * (6 + GRACE) / 6
    assert 0.3 <= float(told[2]) < GRACE, "it saves for 1 s, and 0.6 s were kept for that"
    assert time.monotonic() - began >= 6
    cost = job.platform.cost(found)  # type: ignore[attr-defined]
    assert cost.amount == pytest.approx(float(told[1]), rel=0.2)
    record = JobFolder.of("local", job.name).read_record()
    assert (record.metrics, record.cost, record.currency) == ({}, cost.amount, "EUR")
    shown = json.loads(CliRunner().invoke(cli, ["describe", job.name, "--json"]).stdout)
    assert (shown["cost"], shown["currency"], shown["cap"]) == (cost.amount, "EUR", "max_cost of 0.001 EUR")
    assert shown["price"]["date"] == "2026-10-01"
    seen = ends.look(job.platform, found, "")
    assert (seen.job.cost, seen.job.currency) == (cost.amount, "EUR")


def test_the_attempts_share_the_cap_and_each_has_its_price(run: Run) -> None:
    # the first two attempts fail, each in another way
    fails = "attempt = int(os.environ['CLOUDTRAIN_ATTEMPT']); attempt < 2 and sys.exit(3 + attempt)"
    job = run(TRAINS.format(upload=0, then=fails), max_cost=0.002, max_retry_attempts=9, stop_grace=GRACE)
    found = job.describe()
    assert found.status == JobStatus.STOPPED, found
    assert found.reason.startswith("the max_cost of 0.002 EUR is reached")
    assert 1 <= found.attempt <= 2
    attempts = [event for event in job.platform.events(job.name) if event["event"] == "attempt"]  # type: ignore[attr-defined]
    assert len(attempts) == found.attempt + 1
    for event in attempts:
        assert event["price"]["per_hour"] == 0.6
        assert event["price"]["currency"] == "EUR"


def test_the_cost_so_far_is_shown_and_a_job_without_a_price_has_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(TRAINS.format(upload=0, then=""), wait=False, stop_grace=GRACE)
    wait_until(lambda: "on" in job.logs(), "the script")
    first = job.platform.cost(job.describe())  # type: ignore[attr-defined]
    time.sleep(0.5)
    assert 0 < first.amount < job.platform.cost(job.describe()).amount  # type: ignore[attr-defined]
    assert "EUR" in CliRunner().invoke(cli, ["describe", job.name]).output
    job.stop()
    monkeypatch.delenv("CLOUDTRAIN_CONFIG")
    other = run("print(1)")
    assert json.loads(CliRunner().invoke(cli, ["describe", other.name, "--json"]).stdout)["cost"] is None
    assert "cost " not in CliRunner().invoke(cli, ["describe", other.name]).output


def test_a_supervisor_that_is_paused_over_the_cap_ends_the_job_when_it_continues(run: Run) -> None:
    job = run(TRAINS.format(upload=0, then=""), wait=False, max_cost=0.002, stop_grace=GRACE)
    wait_until(lambda: "on" in job.logs(), "the script")
    pid = JobFolder.of("local", job.name).read_record().pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: job.platform.cost(job.describe()).amount > 0.0022,  # type: ignore[attr-defined]
            "a cost over the cap that is shown",
        )
        assert not job.status.is_final
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: job.status.is_final, "the end")
    found = job.describe()
    assert found.status == JobStatus.STOPPED
    assert re.search(r"reached: it cost 0\.00\d+ EUR, \d+\.\d s after the cap", found.reason), found.reason
    assert "saved" in job.logs()


@pytest.mark.parametrize("seconds", [86400, -86400], ids=["ahead", "back"])
def test_a_clock_that_jumps_ends_no_job_at_its_cap(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    step = tmp_path / "step"
    write_clock(tmp_path, step)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = run(TRAINS.format(upload=0, then="time.sleep(4); sys.exit(0)"), wait=False, max_cost=0.02)
    wait_until(lambda: "on" in job.logs(), "the script")
    step.write_text(str(seconds))
    wait_until(lambda: job.status.is_final, "the end")
    assert job.status == JobStatus.COMPLETED, job.describe().reason
    cost = job.platform.cost(job.describe())  # type: ignore[attr-defined]
    assert 0 < cost.amount < 0.02
