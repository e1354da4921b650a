"""A job in containers that hangs silently: the rank that sleeps in the kernel is named, from outside."""

from __future__ import annotations

from pathlib import Path

from container_jobs import jobs_in, wait_until
from engine_daemon import Engine

from cloudtrain import Job
from cloudtrain._display.view import look_at

SLEEPS_IN_THE_KERNEL = """
    import os, time
    def wait():
        time.sleep(600)
    def start():
        os.mkfifo("/tmp/pipe")
        read = (os.POSIX_SPAWN_OPEN, 0, "/tmp/pipe", os.O_RDONLY, 0)
        os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[read])
    start() if os.environ["SM_CURRENT_HOST"] == "algo-2" else wait()
"""


def test_a_rank_that_sleeps_in_the_kernel(engine: Engine, tmp_path: Path) -> None:
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(SLEEPS_IN_THE_KERNEL, instance_count=3, hang_after=4, stop_grace=0)
        wait_until(lambda: _hanging(job) or job.status.is_final, "the hang")
        found = look_at(job.platform, job.name).hanging
        assert found, job.logs()
        assert (found.ranks, found.host, found.cause) == ("1", "algo-2", "script"), found
        assert "start at train.py:8" in found.message or "sleeps uninterruptibly" in found.message


def _hanging(job: Job) -> object:
    return look_at(job.platform, job.name).hanging
