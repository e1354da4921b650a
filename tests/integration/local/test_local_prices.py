"""A table of prices that changes while a job runs, and the cost of its attempts in every view."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import CLOUDTRAIN
from dashboard_client import dashboard
from local_jobs import Run, events, folder, wait_for_end, wait_until
from parsed_html import parse
from terminal import terminal

from cloudtrain import JobStatus
from cloudtrain.cli import cli
from cloudtrain.watch.report import write_report

TABLE = "prices: {{currency: EUR, source: {source}, rows: [{{platform: local, node_hour: {price}}}]}}"
SCRIPT = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("on", flush=True)
    if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.05)
        sys.exit(3)
    time.sleep(300)
"""


def test_a_price_that_leaves_nothing_of_the_cap_starts_no_host(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(TABLE.format(source="old", price=0.6))
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    go = tmp_path / "go"
    job = run(SCRIPT, wait=False, max_cost=0.05, max_retry_attempts=1, arguments=[str(go)])
    wait_until(lambda: "on" in job.logs(), "the first attempt")
    config.write_text(TABLE.format(source="new", price=999_999_999))
    go.touch()
    found = wait_for_end(job).describe()
    assert (found.status, found.attempt) == (JobStatus.STOPPED, 1)
    assert found.reason.startswith("the max_cost of 0.05 EUR is reached"), found.reason
    assert [one["attempt"] for one in events(job, "host")] == [0]


def test_each_attempt_has_the_price_of_its_start_and_every_view_the_same_cost(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(TABLE.format(source="old", price=0.6))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", "config.yaml")
    go = tmp_path / "go"
    job = run(
        SCRIPT, wait=False, max_cost=0.05, max_retry_attempts=1, stop_grace=60, arguments=[str(go)]
    )  # 300 s at first, and then 5
    wait_until(lambda: "on" in job.logs(), "the first attempt")
    (tmp_path / "config.yaml").write_text(TABLE.format(source="new", price=36))
    go.touch()
    found = wait_for_end(job).describe()
    assert (found.status, found.attempt) == (JobStatus.STOPPED, 1)
    assert found.reason.startswith("the max_cost of 0.05 EUR is reached: it cost 0."), found.reason
    first, second = events(job, "attempt")
    assert [one["price"]["per_hour"] for one in (first, second)] == [0.6, 36]
    assert "from this attempt on, an hour of all hosts costs 36.00 EUR" in job.logs()
    record = folder(job).read_record()
    assert record.cost_terms is not None and record.ended_at is not None and record.cost is not None
    paid_for, held = record.cost_terms["paid_for"], record.held_seconds(record.ended_at)
    assert 0 < paid_for <= held - 4
    assert record.cost == pytest.approx((paid_for * 0.6 + (held - paid_for) * 36) / 3600)
    assert 0.045 <= record.cost < 0.05 + 36 * 60 / 3600

    cost = job.platform.cost(found)  # type: ignore[attr-defined]
    assert (cost.amount, cost.source) == (record.cost, "new")
    line = cost.line()
    assert line.startswith(f"about {cost}; max_cost of 0.05 EUR")
    described = json.loads(CliRunner().invoke(cli, ["describe", job.name, "--json"]).stdout)
    [listed] = json.loads(CliRunner().invoke(cli, ["list", "--json"]).stdout)
    assert (described["cost"], listed["cost"]) == (record.cost, record.cost)
    assert line in CliRunner().invoke(cli, ["describe", job.name]).output
    assert str(cost) in CliRunner().invoke(cli, ["list"]).output
    assert line in parse(write_report(tmp_path / "report.html", job).read_text().partition("\n")[2]).text
    with dashboard(tmp_path) as client:
        client.enter()
        assert line in client.get(f"jobs/local/{job.name}").body
        assert str(cost) in client.get("rows").body
    with terminal([CLOUDTRAIN, "top", job.name], os.environ, columns=140) as screen:
        screen.wait_for(line)
