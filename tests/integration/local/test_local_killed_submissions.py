"""kill -9 of a submission, half-made folders of earlier versions, and cleaning at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_submissions import kill_submissions
from local_jobs import Run

from cloudtrain import JobStatus
from cloudtrain.errors import JobExists
from cloudtrain.platforms.supervised import JobFolder


def test_a_killed_submission_leaves_a_job_or_a_free_name(tmp_path: Path) -> None:
    kill_submissions(tmp_path, 6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_killed_submission_leaves_a_job_or_a_free_name_at_length(tmp_path: Path) -> None:
    kill_submissions(tmp_path, 200, seed=2)


@pytest.mark.parametrize(
    "files", [[], ["request.json"], ["request.json", "job.log", "supervisor.log", "lock"]]
)
def test_what_earlier_versions_have_left_blocks_no_name(files: list[str], run: Run) -> None:
    folder = JobFolder.of("local", "half")
    folder.path.mkdir(parents=True)
    for file in files:
        (folder.path / file).touch()
    assert run("print('on')", job_name="half").status == JobStatus.COMPLETED


def test_a_folder_with_something_else_is_left_alone(run: Run) -> None:
    folder = JobFolder.of("local", "mine")
    (folder.path / "checkpoints").mkdir(parents=True)
    with pytest.raises(JobExists, match="already a local job mine"):
        run("print('on')", job_name="mine")
    assert (folder.path / "checkpoints").is_dir()
