"""Which leftovers of jobs on this machine are removed."""

from __future__ import annotations

import json
import os
import time

from click.testing import CliRunner

from cloudtrain.cli.clean import command
from cloudtrain.contract import JobStatus
from cloudtrain.index import IndexEntry, add_job, find_job
from cloudtrain.platforms import JobDescription, get_platform
from cloudtrain.platforms.supervised.leftovers import JobEnds, old_jobs, stale_temporaries, unused_caches
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import state_home

ENDS = JobEnds(lambda platform, name: get_platform(platform).describe(name))


def _job(name: str, status: JobStatus, ended_at: float | None, platform: str = "local") -> JobFolder:
    folder = JobFolder.of(platform, name)
    folder.path.mkdir(parents=True)
    folder.write_record(JobRecord(status, submitted_at=0.0, ended_at=ended_at))
    folder.log.write_text("12345")
    add_job(IndexEntry(name, platform, 0.0))
    return folder


def test_only_jobs_that_ended_long_ago_are_removed() -> None:
    now = time.time()
    old = _job("old", JobStatus.COMPLETED, now - 100)
    other = _job("other", JobStatus.FAILED, now - 100, "container")
    new = _job("new", JobStatus.COMPLETED, now)
    alive = _job("alive", JobStatus.RUNNING, None)
    os.utime(alive.path / "state.json", (now - 100, now - 100))
    lock = alive.lock()
    assert lock is not None
    assert alive.is_locked()
    found = list(old_jobs(now - 50, ENDS))
    assert sorted(leftover.name for leftover in found) == ["old", "other"]
    assert all(leftover.size > 5 for leftover in found)
    for leftover in found:
        leftover.remove()
    assert [folder.path.exists() for folder in (old, other, new, alive)] == [False, False, True, True]
    assert find_job("old") is None
    assert find_job("new") is not None

    for file in alive.path.iterdir():
        os.utime(file, (now - 100, now - 100))
    os.close(lock)  # its supervisor was killed
    assert not alive.is_locked()
    assert [leftover.name for leftover in old_jobs(now - 50, ENDS)] == ["alive"]


def test_caches_are_kept_while_a_job_is_alive() -> None:
    cache = state_home() / "archives" / "0123"
    cache.mkdir(parents=True)
    (cache / "sourcedir.tar.gz").write_bytes(b"123")
    folder = _job("alive", JobStatus.RUNNING, None)
    lock = folder.lock()
    assert lock is not None
    assert list(unused_caches(ENDS)) == []
    os.close(lock)
    [leftover] = unused_caches(ENDS)
    assert (leftover.kind, leftover.size) == ("cache", 3)
    leftover.remove()
    assert not cache.parent.exists()


def test_a_cache_is_kept_while_a_submission_writes_it() -> None:
    scratch = state_home() / "archives" / ".cloudtrain-tmp-0123"
    scratch.parent.mkdir(parents=True)
    scratch.write_bytes(b"123")
    assert list(unused_caches(ENDS)) == []
    assert list(stale_temporaries()) == []
    hours_ago = time.time() - 2 * 3600
    os.utime(scratch, (hours_ago, hours_ago))
    assert [leftover.name for leftover in unused_caches(ENDS)] == [str(scratch.parent)]
    assert list(stale_temporaries()) == []


def test_a_temporary_file_of_a_killed_submission_is_removed_after_a_day() -> None:
    scratch = state_home() / "archives" / ".cloudtrain-tmp-0123"
    scratch.parent.mkdir(parents=True)
    scratch.write_bytes(b"123")
    days_ago = time.time() - 2 * 86400
    os.utime(scratch, (days_ago, days_ago))
    [leftover] = stale_temporaries()
    assert (leftover.kind, leftover.name, leftover.size) == ("cache", str(scratch), 3)
    leftover.remove()
    assert not scratch.exists()


def test_a_job_whose_platform_does_not_answer_is_kept_with_what_it_may_use() -> None:
    cache = state_home() / "archives" / "0123"
    cache.mkdir(parents=True)
    folder = _job("queued", JobStatus.PENDING, None, "nosuch")
    os.utime(folder.path / "state.json", (1.0, 1.0))
    result = CliRunner().invoke(command, ["--jobs-older-than", "1d", "--caches", "--json"])
    document = json.loads(result.stdout)
    assert document["removed"] == []
    [kept] = document["unknown"]
    assert kept["job"] == "nosuch job queued"
    assert "unknown platform 'nosuch'" in kept["reason"]
    assert (
        "nosuch job queued is kept, and what it may use: it is unknown whether it has ended" in result.stderr
    )
    assert folder.path.exists() and cache.exists()


def test_a_folder_is_kept_if_its_job_is_elsewhere_on_the_platform() -> None:
    folder = _job("twin", JobStatus.COMPLETED, 1.0)
    (state_home() / "clusters" / "local").mkdir(parents=True)
    ticket = state_home() / "clusters" / "local" / "twin.json"
    ticket.touch()
    elsewhere = JobDescription("twin", "local", JobStatus.COMPLETED, 0.0, place="kraken:/scratch/jobs/twin")
    ends = JobEnds(lambda platform, name: elsewhere)
    assert list(old_jobs(time.time(), ends)) == []
    assert ends.unknown == {"local job twin": "the local job of this name is in kraken:/scratch/jobs/twin"}
    [leftover] = old_jobs(time.time(), ENDS)
    leftover.remove()
    assert not folder.path.exists()
    assert not ticket.exists()
