"""The time limit of a submission, the notice ahead of it, and chains of submissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slurm_texts import Programs

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.slurm.directives import SlurmOptions, limit_directives
from cloudtrain.platforms.slurm.jobs import chain_dependency
from cloudtrain.platforms.slurm.platform import SlurmPlatform
from cloudtrain.platforms.slurm.time_limits import limit_seconds
from cloudtrain.runtime.slurm.continuation import TimeLimit, parse_time_limit
from cloudtrain.spec import TrainingJob


def lines(options: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    job = TrainingJob(entry_point="train.py", platform_options=options or {}, **fields)
    return [
        directive.to_line().removeprefix("#SBATCH --")
        for directive in limit_directives(job, SlurmOptions.of(job))
    ]


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (90, 5400),
        ("90", 5400),
        ("2:30", 150),
        ("12:00:00", 43200),
        ("2-0", 172800),
        ("1-02:03", 93780),
        ("1-02:03:04", 93784),
    ],
)
def test_time_limits_in_the_notation_of_slurm(limit: str | int, seconds: int) -> None:
    assert limit_seconds(limit) == seconds


@pytest.mark.parametrize("limit", ["UNLIMITED", "INFINITE", "2d", "1:2:3:4", "", "-5"])
def test_what_is_not_a_time_limit(limit: str) -> None:
    with pytest.raises(InvalidJob, match=r"platform_options\.time") as caught:
        limit_seconds(limit)
    assert "HH:MM:SS" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "fields", "expected"),
    [
        ({}, {}, ["signal=B:USR1@240", "requeue"]),
        ({}, {"max_run": 3600}, ["time=65", "signal=B:USR1@240", "requeue"]),
        ({}, {"max_run": 86400}, ["time=1445", "signal=B:USR1@240", "requeue"]),
        ({"time": "4:00:00"}, {"max_run": 86400}, ["time=4:00:00", "signal=B:USR1@240", "requeue"]),
        ({"time": 5}, {}, ["time=5", "signal=B:USR1@100", "requeue"]),
        ({"requeue": "never"}, {"stop_grace": 30.5}, ["signal=B:USR1@151", "no-requeue"]),
    ],
)
def test_lines_of_the_script(options: dict[str, Any], fields: dict[str, Any], expected: list[str]) -> None:
    assert lines(options, **fields) == [*expected, "kill-on-invalid-dep=yes"]


@pytest.mark.parametrize(
    ("limit", "left", "spare"),
    [
        (60, 60, 40),
        (120, 119, 79),
        (120, 30, 0),
        (360, 250, 130),
        (3600, 300, 0),
        (3600, 240, 0),
        (700, 400, 0),
    ],
)
def test_a_notice_that_is_too_early_counts_later(limit: float, left: float, spare: float) -> None:
    found = parse_time_limit(f"x StartTime=1000 EndTime={1000 + limit} Deadline=N/A", {})
    assert found and found.spare_seconds(120, 1000 + limit - left) == spare


def test_the_time_limit_of_a_job() -> None:
    times = {"SLURM_JOB_START_TIME": "5", "SLURM_JOB_END_TIME": "65"}
    assert parse_time_limit("", times) == TimeLimit(5, 65)
    assert parse_time_limit("", {}) is None
    assert parse_time_limit(" StartTime=5 EndTime=Unknown ", {}) is None


def test_a_chain_ends_with_the_first_success() -> None:
    assert chain_dependency(["7", "8", "9"]) == "afternotok:7:8:9"


def test_the_limit_of_a_partition_is_read_once_for_all_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs(tmp_path / "bin")
    programs.says("sinfo", "P|main*|n/a|1:00\n")
    monkeypatch.setenv("PATH", programs.environ["PATH"])
    platform = SlurmPlatform()
    for _ in range(3):
        job = TrainingJob(entry_point="train.py", platform_options={"folder": str(tmp_path)})
        [warning] = platform.job_warnings(job)
        assert warning.startswith("partition main: the time limit is 1 min.")
    assert len(programs.calls("sinfo")) == 1
