"""The storage is away when a training ends: its outputs are uploaded when it is back, at the latest on request."""

from __future__ import annotations

import json
import tarfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from local_jobs import Run, events, folder, wait_until
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain import Job, JobStatus
from cloudtrain.cli import cli
from cloudtrain.contract import FailureClass
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.supervised.leftovers import JobEnds, old_jobs
from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

TRAIN = """
    from pathlib import Path
    from cloudtrain import environment

    (environment.model_dir() / f"weights-{environment.rank()}").write_text("trained")
    own = environment.model_dir().parent / "checkpoints" / f"own-{environment.rank()}"
    own.write_text("kept")
    with open("TRAININGS", "a") as trainings:
        trainings.write("one\\n")
"""


WAITS = """
    import os, time
    while not os.path.exists("GO"):
        time.sleep(0.05)
"""


class Storage:
    """An S3 service that a test can take away."""

    def __init__(self) -> None:
        self.away = False
        self.missed = 0

    def fault(self, exchange: Exchange) -> Answer | None:
        if not self.away:
            return exchange.forward()
        self.missed += 1
        return None


@pytest.fixture
def storage(s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    storage = Storage()
    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], storage.fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        yield storage


def train(tmp_path: Path) -> str:
    """A script that waits for the file ``go``, and appends a line to the file ``trainings`` each time it runs."""
    waits = WAITS.replace("GO", str(tmp_path / "go"))
    return textwrap.dedent(waits + TRAIN).replace("TRAININGS", str(tmp_path / "trainings"))


def trainings(tmp_path: Path) -> int:
    return len((tmp_path / "trainings").read_text().splitlines())


def take_away_after_the_start(job: Job, storage: Storage, tmp_path: Path) -> None:
    wait_until(lambda: events(job, "launch"), "the launch")
    storage.away = True
    (tmp_path / "go").touch()


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_job_waits_for_its_storage(hosts: int, run: Run, storage: Storage, s3: str, tmp_path: Path) -> None:
    job = run(train(tmp_path), instance_count=hosts, output_path=f"s3://{s3}/out", wait=False)
    take_away_after_the_start(job, storage, tmp_path)
    wait_until(lambda: storage.missed > 3 or job.status.is_final, "the upload")
    threading.Timer(2.0, setattr, (storage, "away", False)).start()
    job.wait()
    assert job.status == JobStatus.COMPLETED
    assert trainings(tmp_path) == hosts
    [model, *_] = job.download(tmp_path / "got")
    with tarfile.open(model) as archive:
        assert len(archive.getnames()) == hosts


@pytest.mark.parametrize("hosts", [1, 2])
def test_what_could_not_be_uploaded_is_sent_later(
    hosts: int, run: Run, storage: Storage, s3: str, tmp_path: Path
) -> None:
    job = run(
        train(tmp_path),
        instance_count=hosts,
        output_path=f"s3://{s3}/out",
        checkpoint_s3_uri=f"s3://{s3}/checkpoints",
        max_retry_attempts=2,
        max_run=30,
        stop_grace=1,
        wait=False,
    )
    take_away_after_the_start(job, storage, tmp_path)
    wait_until(lambda: job.status.is_final, "the end")
    failure = job.failure
    assert failure is not None
    assert (job.status, failure.failure_class) == (JobStatus.FAILED, FailureClass.UPLOAD)
    assert failure.message.startswith(
        "the training is complete, but its outputs could not be uploaded: s3://"
    )
    assert f"cloudtrain upload {job.name}" in failure.hint
    assert str(folder(job).path / "hosts") in failure.hint
    assert trainings(tmp_path) == hosts
    assert job.name not in [
        leftover.name
        for leftover in old_jobs(time.time() + 10, JobEnds(lambda _, name: Job.attach(name).describe()))
    ]
    ended_at = job.describe().ended_at
    storage.away = False
    done = CliRunner().invoke(cli, ["upload", job.name, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"model": f"s3://{s3}/out/{job.name}/output/model.tar.gz"}
    assert job.status == JobStatus.COMPLETED
    assert job.failure is None
    assert job.describe().ended_at == ended_at, "the days until the upload are not the job's"
    [model] = job.download(tmp_path / "got")
    with tarfile.open(model) as archive:
        assert len(archive.getnames()) == hosts
    saved = [entry.key for entry in open_store(f"s3://{s3}/checkpoints").list()]
    assert saved == [f"own-{rank}" for rank in range(hosts)]
    assert job.upload() == json.loads(done.stdout)


def test_a_stopped_job_has_one_line_on_why_its_outputs_are_not_uploaded(
    run: Run, storage: Storage, s3: str
) -> None:
    script = """
        import time
        from cloudtrain import environment

        (environment.model_dir() / "weights").write_text("trained")
        time.sleep(600)
    """
    job = run(textwrap.dedent(script), output_path=f"s3://{s3}/out", stop_grace=2, wait=False)
    weights = folder(job).path / "hosts" / "algo-1" / "model" / "weights"
    wait_until(weights.is_file, "the model")
    storage.away = True
    job.stop()
    job.wait()
    assert job.status == JobStatus.STOPPED
    [warning] = [line for line in job.describe().warnings if "could not be uploaded" in line]
    assert warning.startswith("the outputs of the stopped job could not be uploaded: s3://")
    assert "\\n" not in warning and "\n" not in warning


def test_a_job_whose_training_failed_has_nothing_to_upload(run: Run) -> None:
    job = run("raise SystemExit(3)")
    with pytest.raises(PlatformError, match="its training is not complete"):
        job.upload()
