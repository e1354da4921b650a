"""kill -9 of a submission, half-made folders of earlier versions, and cleaning at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from killed_submissions import kill_submissions
from local_jobs import Run, folder, wait_for_supervisor

from cloudtrain import Job, JobStatus
from cloudtrain.errors import JobExists
from cloudtrain.platforms.supervised import JobFolder
from cloudtrain.platforms.supervised.leftovers import JobEnds, half_made, unused_caches
from cloudtrain.submission import prepare


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
    half = JobFolder.of("local", "half")
    half.path.mkdir(parents=True)
    for file in files:
        (half.path / file).touch()
    assert run("print('on')", job_name="half").status == JobStatus.COMPLETED


def test_a_folder_with_something_else_is_left_alone(run: Run) -> None:
    mine = JobFolder.of("local", "mine")
    (mine.path / "checkpoints").mkdir(parents=True)
    with pytest.raises(JobExists, match="already a local job mine"):
        run("print('on')", job_name="mine")
    assert (mine.path / "checkpoints").is_dir()


def test_simultaneous_cleaning_harms_no_submission(tmp_path: Path, run: Run) -> None:
    ended = folder(wait_for_supervisor(run("print('on')")))
    for number in range(20):
        copy = JobFolder(ended.path.with_name(f"old-{number}"))
        shutil.copytree(ended.path, copy.path, ignore=shutil.ignore_patterns("*.pipe"))
        copy.write_record(replace(copy.read_record(), ended_at=1.0))
    command = [sys.executable, "-m", "cloudtrain", "clean", "--jobs-older-than", "1d", "--caches"]
    begun = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    number = 0
    while number < 3 or any(process.poll() is None for process in begun):
        assert run(f"print({number})").logs() == f"[rank 0] {number}\n"
        number += 1
    for process in begun:
        output, errors = process.communicate()
        assert "Traceback" not in errors
        failed = [line for line in errors.splitlines() if "cannot be removed" in line]
        assert all("a job that has just been submitted uses it" in line for line in failed), (output, errors)
    assert not list(ended.path.parent.glob("old-*"))
    assert [path.name for path in ended.path.parent.iterdir() if path.name.startswith(".")] == []


def test_what_killed_submissions_left_is_cleaned(run: Run) -> None:
    job = folder(wait_for_supervisor(run("print('on')")))
    draft = job.path.with_name(".cloudtrain-tmp-0123456789abcdef")
    shutil.copytree(job.path, draft, ignore=shutil.ignore_patterns("*.pipe"))
    assert list(half_made()) == []  # a submission may still make it
    os.utime(draft, (1, 1))
    lock = JobFolder(draft).lock()
    assert lock is not None
    assert list(half_made()) == []
    os.close(lock)
    os.utime(draft, (1, 1))
    [leftover] = half_made()
    leftover.remove()
    assert [path.name for path in job.path.parent.iterdir()] == [job.name]


@pytest.mark.parametrize("holds", [True, False])
def test_caches_are_kept_for_a_job_that_is_being_submitted(holds: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('on')")
    submission = prepare({"entry_point": str(tmp_path / "train.py")}, defaults={})
    assert submission.archive
    if not holds:
        assert submission.caches
        submission.caches.close()
    found = list(unused_caches(JobEnds(lambda _, name: Job.attach(name).describe())))
    assert bool(found) is not holds
    for leftover in found:
        leftover.remove()
    assert submission.archive.path.exists() is holds
