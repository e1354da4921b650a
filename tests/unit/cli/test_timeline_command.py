"""``cloudtrain timeline`` on files and on a folder of a job."""

from __future__ import annotations

import importlib.util
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cloudtrain.cli import cli
from cloudtrain.cli._timeline import job_files
from cloudtrain.errors import CloudtrainError, NotFound, StorageError
from cloudtrain.job import Job
from cloudtrain.observe.timeline import Timeline
from cloudtrain.platforms import JobDescription, Request
from cloudtrain.testing import FakePlatform

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["timeline", *map(str, arguments)])


def record(path: Path, rank: int, steps: int = 3) -> None:
    timeline = Timeline(path, rank, 2)
    for _ in range(steps + 1):
        operation = timeline.operation("allreduce", "gradients", {})
        operation.end()
        timeline.waited("allreduce of gradients", operation.asked)
        timeline.step_ended()
    timeline.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Timelines of two ranks."""
    for rank in (0, 1):
        record(tmp_path / "ranks" / f"timeline.rank{rank}.json", rank)
    return tmp_path / "ranks"


def test_one_row_per_rank(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 0, result.output
    heading, *rows = result.stdout.splitlines()
    assert heading.split()[:3] == ["RANK", "HOST", "TOTAL"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert sum(int(row.split()[-1].split("/")[0]) for row in rows) == 3


def test_one_row_per_step(folder: Path) -> None:
    rows = run("--steps", *folder.iterdir()).stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]


def test_json(folder: Path) -> None:
    described: dict[str, Any] = json.loads(run(folder, "--json").stdout)
    assert [(rank["rank"], rank["steps"]) for rank in described["ranks"]] == [(0, 3), (1, 3)]
    assert set(described["ranks"][0]["parts"]) == {"total", "compute", "communication", "exposed"}
    for step in described["steps"]:
        for rank in step["ranks"]:
            assert rank["compute"] + rank["exposed"] == pytest.approx(rank["total"])
        assert step["slowest"] == max(step["ranks"], key=lambda rank: rank["compute"])["rank"]


def test_one_trace_is_written(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "--output", tmp_path / "merged.json").exit_code == 0
    merged = json.loads((tmp_path / "merged.json").read_text())
    assert {event["pid"] for event in merged["traceEvents"]} == {0, 1}
    result = run(folder, "--output", tmp_path / "no" / "merged.json")
    assert isinstance(result.exception, CloudtrainError)


@pytest.mark.skipif(
    not HAS_MATPLOTLIB and "CLOUDTRAIN_REQUIRE_ALL" not in os.environ, reason="matplotlib is not installed"
)
def test_a_plot_is_written(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "--png", tmp_path / "picture.png").exit_code == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_timeline_without_complete_steps_is_not_drawn(tmp_path: Path) -> None:
    record(tmp_path / "t.json", 0, steps=0)
    result = run(tmp_path / "t.json")
    assert result.exit_code == 0
    assert "No complete steps" in result.stderr
    result = run(tmp_path / "t.json", "--png", tmp_path / "p.png")
    assert "no complete steps to draw" in str(result.exception)


def test_a_folder_without_traces(tmp_path: Path) -> None:
    assert "there is no trace at" in str(run(tmp_path).exception)


class Elsewhere(FakePlatform):
    """A platform with jobs whose outputs are at ``uri``."""

    def __init__(self, uri: str | None) -> None:
        super().__init__(model_data="s3://nobody/asks-for-it/model.tar.gz")
        self._uri = uri

    def describe(self, job_name: str) -> JobDescription:
        return replace(super().describe(job_name), output_data=self._uri)


def job_with(uri: str | None) -> Job:
    platform = Elsewhere(uri)
    platform.submit(Request("fake", "job", {}))
    return Job("job", platform)


def test_the_files_of_a_job_that_ran_elsewhere(folder: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    (outputs / "output").mkdir(parents=True)
    folder.rename(outputs / "output" / "timeline")
    with tarfile.open(outputs / "output.tar.gz", "w:gz") as archive:
        archive.add(outputs / "output" / "timeline", "timeline")
        archive.add(__file__, "other.json")
    for name in ("output", "output.tar.gz"):
        files = job_files(job_with((outputs / name).as_uri()), tmp_path / f"to-{name}")
        assert [path.name for path in files] == ["timeline.rank0.json", "timeline.rank1.json"]
        assert all(path.parent.parent.parent.name == f"to-{name}" for path in files)


def test_links_and_pipes_that_a_job_left_among_its_traces_are_not_read(folder: Path, tmp_path: Path) -> None:
    traces = tmp_path / "job" / "hosts" / "algo-1" / "output" / "data" / "timeline"
    traces.parent.mkdir(parents=True)
    folder.rename(traces)
    os.mkfifo(traces / "pipe.json")
    (tmp_path / "outside.json").write_text("{}")
    (traces / "link.json").symlink_to(tmp_path / "outside.json")

    class Here(FakePlatform):
        def describe(self, job_name: str) -> JobDescription:
            return replace(super().describe(job_name), place=str(tmp_path / "job"))

    platform = Here()
    platform.submit(Request("fake", "job", {}))
    files = job_files(Job("job", platform), tmp_path / "to")
    assert [path.name for path in files] == ["timeline.rank0.json", "timeline.rank1.json"]
    assert all(path.is_relative_to(tmp_path / "to") for path in files)


def test_a_job_without_a_timeline(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"has no timeline\n.*timeline=True"):
        job_files(job_with(None), tmp_path)
    (tmp_path / "output.tar.gz").write_text("no archive")
    with pytest.raises(StorageError, match="is damaged"):
        job_files(job_with((tmp_path / "output.tar.gz").as_uri()), tmp_path / "to")
