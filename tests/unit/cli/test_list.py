"""``cloudtrain list`` shows every job, whatever the platforms of third parties do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cloudtrain.cli.list import command
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

    def get_platform(name: str) -> Platform:
        return kinds[name]()  # type: ignore[return-value]

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
