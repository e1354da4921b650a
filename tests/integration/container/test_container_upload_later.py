"""The storage is away when the containers of a job end: their outputs stay on this machine, and are sent later."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_jobs import folder_of, jobs_in, wait_for_end, wait_until
from engine_daemon import Engine
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain import FailureClass, JobStatus
from cloudtrain.testing import S3Server

TRAIN = """
    import os, time
    print("trains", flush=True)
    while not os.path.exists("/gate/open"):
        time.sleep(0.05)
    open(os.environ["SM_MODEL_DIR"] + "/weights", "w").close()
"""


def test_what_could_not_be_uploaded_is_sent_later(
    engine: Engine, s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = False
    gate = tmp_path / "gate"
    gate.mkdir()

    def fault(exchange: Exchange) -> Answer | None:
        return None if away else exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with jobs_in(engine, tmp_path) as jobs:
            job = jobs.start(
                TRAIN,
                output_path=f"s3://{s3}/out",
                max_run=600,
                stop_grace=1,
                max_retry_attempts=1,
                options={"volumes": [f"{gate}:/gate:ro"]},
            )
            wait_until(lambda: job.status.is_final or "trains" in job.logs(), "the training")
            away = True
            (gate / "open").touch()
            wait_until(lambda: job.status.is_final or job.describe().phase == "upload", "the upload")
            assert not job.status.is_final
            job.stop()
            assert job.status != JobStatus.RUNNING
            wait_for_end(job)
        failure = job.failure
        assert failure is not None, job.describe()
        assert (job.status, failure.failure_class) == (JobStatus.FAILED, FailureClass.UPLOAD)
        assert str(folder_of(job).path / "hosts") in failure.hint
        assert job.logs().count("trains") == 1
        away = False
        assert job.upload() == {"model": f"s3://{s3}/out/{job.name}/output/model.tar.gz"}
        assert job.status == JobStatus.COMPLETED
        assert [path.name for path in job.download(tmp_path / "got")] == ["model.tar.gz"]
