"""Reports of real jobs: one that runs, one that failed, and one whose platform does not answer."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from local_jobs import Run, folder, wait_for_supervisor, wait_until
from parsed_html import Element, parse

from cloudtrain.cli import cli
from cloudtrain.history import query
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.watch.report import write_report

SCRIPT = """
    import os, sys, time

    import cloudtrain

    print("token", os.environ["MY_TOKEN"], flush=True)
    for step in range(200):
        cloudtrain.log(step=step, loss=1000 if step == 77 else 1 / (step + 1))
    if sys.argv[-1] == "--wait":
        time.sleep(600)
    raise ValueError(f"<b>no</b> {os.environ['MY_TOKEN']}")
"""
SECRET = "gr4pefruit-" + "m00n"


def _report(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", *arguments])


def _page(path: Path) -> Element:
    text = path.read_text()
    assert SECRET not in text
    return parse(text.removeprefix("<!DOCTYPE html>\n"))


def test_a_job_that_runs_and_one_that_failed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", SECRET)
    failed = run(SCRIPT, secrets=["MY_TOKEN"], hyperparameters={"lr": 0.1, "api_key": SECRET})
    running = run(SCRIPT, wait=False, secrets=["MY_TOKEN"], hyperparameters={"lr": 0.5}, arguments=["--wait"])
    try:
        wait_until(lambda: running.metrics.get("loss") == 0.005, "the last value")
        page = _page(write_report(tmp_path / "running.html", running))
        assert "Running, as of " in page.text
        assert len(page.all("svg")) == 2
        result = _report(failed.name, running.name, "-o", "both.html", "--json")
        assert json.loads(result.output) == {"path": "both.html", "jobs": [failed.name, running.name]}
        page = _page(tmp_path / "both.html")
        assert [cell.text for cell in page.all("tr")[1].all("td")] == ["0.1", "0.5"]
    finally:
        running.stop()
    page = _page(write_report(tmp_path / "failed.html", failed))
    assert page.all("h2")[0].text == "Failure"
    assert "raised ValueError: <b>no</b> ***" in page.text
    facts = {label.text: value.text for label, value in zip(page.all("dt"), page.all("dd"), strict=True)}
    assert (facts["lr"], facts["api_key"], facts["hosts"]) == ("0.1", "***", "1 × local")
    assert "1e+03" in page.text or "1000" in page.text
    assert SECRET not in write_report(tmp_path / "failed.md", failed).read_text()


def test_a_job_whose_platform_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    monkeypatch.chdir(tmp_path)
    add_job(IndexEntry("lost", "kubernetes", time.time()))
    result = _report("lost")
    assert result.exit_code == 0, result.output
    page = _page(tmp_path / "report.html")
    assert "unknown, as of " in page.text
    assert "The platform kubernetes" in page.text


def test_a_job_whose_folder_is_gone(run: Run) -> None:
    """It is in the history, with its parameters, metrics and outcome."""
    job = run(SCRIPT, environment={"MY_TOKEN": "none"}, hyperparameters={"lr": 0.25, "api_key": SECRET})
    assert query(f"name == '{job.name}'")[0].metrics["loss"].last == 0.005
    shutil.rmtree(folder(wait_for_supervisor(job)).path)
    text = _report(job.name, "--markdown", "-o", "-").output
    assert "no longer has the job" in text
    for row in (
        "| lr | 0.25 |",
        r"| api\_key | \*\*\* |",
        "| last loss | 0.005 |",
        "| entry point | train.py |",
    ):
        assert row in text
    assert "unknown, as of " in text and "; Failed on " in text
    assert SECRET not in text


def test_a_job_that_does_not_exist_and_a_folder_that_does_not() -> None:
    from cloudtrain.errors import JobNotFound, StorageError

    result = _report("nobody")
    assert isinstance(result.exception, JobNotFound)
    add_job(IndexEntry("lost", "local", time.time()))
    result = _report("lost", "-o", "/proc/nowhere/report.html")
    assert isinstance(result.exception, StorageError)
    assert "/proc/nowhere/report.html cannot be written" in str(result.exception)
    assert "no longer has the job" in _report("lost", "--markdown", "-o", "-").output
