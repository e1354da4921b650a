"""Rounds of bad weather: one training each, submitted again until it has completed, and what is judged after it."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_proxy import FaultProxy
from stepped_clock import write_clock
from weather_faults import Surroundings, Victim, belongs, command_of, draw_fault, processes_of
from weather_figures import Figures
from weather_training import SCRIPT, STEPS, Journal, value_at

from cloudtrain import Estimator, FailureClass, Job
from cloudtrain._system.users import user_id
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.testing import S3Server

BUCKET = "weather"
DISK_MEGABYTES = 64
CALM_SECONDS = (0.1, 1.5)
"""The shortest and the longest time between two faults."""
MOST_FAULTS = 10
"""In one job. After them, it has `END_SECONDS` to end."""
END_SECONDS = 120.0
LEAK_SECONDS = 60.0
"""The time in which the processes of a job that has ended end themselves.

A runtime whose supervisor was killed tries for half a minute to save its last checkpoint.
"""
ENDLESS = 30
"""For budgets that no round uses up."""


@contextlib.contextmanager
def surroundings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """A disk, a clock, a temporary folder and an S3 server of one lane. Mounting the disk needs root."""
    disk, modules, temporary, source = (folder / name for name in ("disk", "modules", "tmp", "source"))
    for path in (disk, modules, temporary, source):
        path.mkdir()
    options = f"size={DISK_MEGABYTES}m"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=False).returncode:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "a small file system cannot be mounted here"
        pytest.skip("mounting a file system needs root")
    clock = folder / "clock"
    write_clock(modules, clock)
    (source / "train.py").write_text(SCRIPT)
    try:
        with S3Server(folder / "s3") as server, FaultProxy(server.env["AWS_ENDPOINT_URL_S3"]) as proxy:
            server.create_bucket(BUCKET)
            environ = {**server.env, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
            environ |= {"CLOUDTRAIN_HOME": str(disk / "home"), "PYTHONPATH": str(modules)}
            for name, value in environ.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("TMPDIR", str(temporary))
            yield Surroundings(folder, disk, clock, server, proxy)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def play(around: Surroundings, seed: int, seconds: float, figures: Figures) -> None:
    """Play rounds for ``seconds``. Then the last job continues without faults until it has completed."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        _Round(around, number, seed, figures, end).play()


class _Round:
    """A number and a seed always draw the same faults; what they hit depends on the speed of the machine."""

    def __init__(self, around: Surroundings, number: int, seed: int, figures: Figures, end: float) -> None:
        self._around = around
        self._number = number
        self._where = f"seed {seed}, round {number}"
        self._draw = random.Random(f"{seed} {number}")
        self._figures = figures
        self._end = end
        """The monotonic time from which on there are no more faults."""
        self._journal = around.folder / f"{number}.journal"

    def play(self) -> None:
        for submission in range(ENDLESS):
            job = self._submit(submission)
            status = self._spoil(Victim(job, self._journal, self._around))
            self._look_for_leaks(job)
            if status == "Completed":
                self._judge_model(job)
            if status in ("Completed", ""):
                break
        Journal.read(self._journal).judge(self._where, self._figures)
        for job in self._jobs():
            subprocess.run(["rm", "-rf", job.path], check=True)  # the disk is small

    def _submit(self, submission: int) -> Job:
        prefix = f"s3://{BUCKET}/{self._number}"
        estimator = Estimator(
            "train.py",
            source_dir=str(self._around.folder / "source"),
            instance_count=2,
            hyperparameters={"journal": str(self._journal)},
            checkpoint_s3_uri=f"{prefix}/checkpoints",
            output_path=f"{prefix}/out",
            max_run=3600,
            max_retry_attempts=ENDLESS,
            stop_grace=20,
            platform_options={"max_preemptions": ENDLESS},
        )
        return estimator.fit(wait=False, logs=False, job_name=f"weather-{self._number}-{submission}")

    def _spoil(self, victim: Victim) -> str:
        """Let faults happen to a job until it has ended; returns its status, or an empty text if that is wrong."""
        applied = []
        began = time.monotonic()
        for _ in range(self._draw.randrange(2, MOST_FAULTS + 1)):
            time.sleep(self._draw.uniform(*CALM_SECONDS))
            if victim.job.status.is_final or time.monotonic() > self._end:
                break
            name, apply = draw_fault(self._draw)
            self._figures.faults[name] += 1
            applied.append(f"{name} at {time.monotonic() - began:.1f} s")
            apply(victim)
        deadline = time.monotonic() + END_SECONDS
        while not victim.job.status.is_final and time.monotonic() < deadline:
            time.sleep(0.1)
        description = victim.job.describe()
        if description.failure and description.failure.failure_class == FailureClass.UPLOAD:
            victim.job.upload()  # as the report advises, now that there is space
            description = victim.job.describe()
        status = str(description.status)
        if status in victim.ends:
            self._figures.ends[status] += 1
            return status
        failure = description.failure.summary() if description.failure else description.reason
        self._figures.wrong.append(
            f"{self._where}: {status} after {', '.join(applied)}: {failure}\n{victim.job.logs()[-2000:]}"
        )
        with contextlib.suppress(Exception):
            victim.job.stop()
        return ""

    def _judge_model(self, job: Job) -> None:
        target = self._around.folder / "model" / job.name
        path = job.download(target)[0]
        with tarfile.open(path) as model:
            [name] = [name for name in model.getnames() if Path(name).name == "value"]
            member = model.extractfile(name)
            assert member
            if member.read().decode() != value_at(STEPS):
                self._figures.wrong.append(f"{self._where}: the model is not that of the last step")

    def _look_for_leaks(self, job: Job) -> None:
        mark = str(JobFolder.of("local", job.name).path).encode()
        deadline = time.monotonic() + LEAK_SECONDS
        while left := processes_of(mark):  # which reads all files of all processes
            while left and time.monotonic() < deadline:
                time.sleep(0.1)
                left = [pid for pid in left if belongs(pid, mark)]
            if left:
                names = [command_of(pid) for pid in left]
                self._figures.leaked.append(f"{self._where}: processes {names}")
                break
        kept = f"cloudtrain-{user_id()}"  # the folder of `folder_of_user`, with the key that hides ports
        files = [path.name for path in (self._around.folder / "tmp").iterdir() if path.name != kept]
        if files:
            self._figures.leaked.append(f"{self._where}: temporary files {files}")
            subprocess.run(["rm", "-rf", *(self._around.folder / "tmp").iterdir()], check=True)

    def _jobs(self) -> list[JobFolder]:
        jobs = JobFolder.of("local", "x").path.parent
        return [JobFolder(path) for path in jobs.glob(f"weather-{self._number}-*")]
