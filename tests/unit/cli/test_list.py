"""``cloudtrain list`` shows every job, whatever the platforms of third parties do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cloudtrain.cli.list import command
from cloudtrain.contract import JobStatus
from cloudtrain.cost import Cost
from cloudtrain.errors import JobNotFound
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.platforms import JobDescription, Platform
from cloudtrain.testing import FakePlatform


class _Offline(FakePlatform):
    def describe(self, job_name: str) -> JobDescription:
        raise OSError("the scheduler is offline")


class _Forgetful(FakePlatform):
    def describe(self, job_name: str) -> JobDescription:
        raise JobNotFound("the job has expired")


class _Healthy(FakePlatform):
    def describe(self, job_name: str) -> JobDescription:
        return JobDescription(job_name, "healthy", "Running", 3.0)  # type: ignore[arg-type]


class _Priced(FakePlatform):
    """Has a job that runs, and one that failed in its second attempt."""

    def describe(self, job_name: str) -> JobDescription:
        status = JobStatus.FAILED if job_name == "job-failed" else JobStatus.RUNNING
        ended = 1000.0 if status.is_final else None
        return JobDescription(job_name, "priced", status, 4.0, started_at=5.0, ended_at=ended, attempt=1)

    def cost(self, description: JobDescription) -> Cost:
        return Cost(1234.5, "EUR", "our contract", "2026-10-01")


class _Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


REASONS = {
    "broken": "RuntimeError: no licence",
    "forgetful": "the job has expired",
    "offline": "OSError: the scheduler is offline",
}


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"offline": _Offline, "forgetful": _Forgetful, "healthy": _Healthy, "broken": _Broken}
    priced = {"priced": _Priced}

    def get_platform(name: str) -> Platform:
        return (kinds | priced)[name]()

    monkeypatch.setattr("cloudtrain.history.described.get_platform", get_platform)
    for number, name in enumerate(kinds):
        add_job(IndexEntry(f"job-{name}", name, number))


def test_json_gives_the_reason_of_an_unknown_state() -> None:
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0, result.exception
    found = {job["platform"]: job for job in json.loads(result.stdout)}
    assert found.pop("healthy")["status"] == "Running"
    assert {name: (job["status"], job["reason"]) for name, job in found.items()} == {
        name: ("Unknown", reason) for name, reason in REASONS.items()
    }


def test_the_table_gives_the_reason_of_an_unknown_state() -> None:
    result = CliRunner().invoke(command)
    assert result.exit_code == 0, result.exception
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "Running" in rows["job-healthy"]
    for name, reason in REASONS.items():
        assert "Unknown" in rows[f"job-{name}"]
        assert reason in rows[f"job-{name}"]
    assert "COST" not in result.stdout, "no price is known"


def test_the_cost_of_jobs_that_run_and_of_those_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("job-failed", "job-runs"):
        add_job(IndexEntry(name, "priced", 4.0))
    shown = [json.loads(CliRunner().invoke(command, ["--json"]).stdout) for _ in range(2)][-1]
    costs = {job["name"]: (job.get("cost"), job.get("currency"), job.get("price")) for job in shown}
    price = {"source": "our contract", "date": "2026-10-01"}
    assert costs["job-failed"] == costs["job-runs"] == (1234.5, "EUR", price)
    assert costs["job-healthy"] == (None, None, None)
    for _ in range(2):  # a job that has ended is in the index then
        lines = CliRunner().invoke(command).stdout.splitlines()
        assert lines[0].split()[-2:] == ["COST", "WHY"]
        assert (
            sum("1,234.50 EUR" in line for line in lines if "job-failed" in line or "job-runs" in line) == 2
        )
