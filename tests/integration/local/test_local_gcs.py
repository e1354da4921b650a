"""A job with its data, checkpoints and model in Google Cloud Storage: an emulator of it."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

from click.testing import CliRunner
from local_jobs import Run, write

from cloudtrain import JobStatus
from cloudtrain.cli import cli
from cloudtrain.storage import open_store, upload_tree

RESUMES = """
    import os
    import numpy as np
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    print(sorted(path.name for path in environment.channel("train").iterdir()))
    checkpointer = Checkpointer()
    found = checkpointer.restore()
    first = found.step if found else 0
    print("from step", first)
    for step in range(first + 1, first + 4):
        checkpointer.save(step, {"weights": np.full(1000, step)})
    checkpointer.close()
    (environment.model_dir() / "model.txt").write_text(f"step {step}")
"""


def test_a_job_resumes_from_google_cloud_storage(run: Run, gcs: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "data", name, name)
    upload_tree(tmp_path / "data", open_store(f"gs://{gcs}/train"))
    fields = {"output_path": f"gs://{gcs}/jobs", "checkpoint_s3_uri": f"gs://{gcs}/checkpoints"}
    for first in (0, 3):
        job = run(RESUMES, {"train": f"gs://{gcs}/train"}, **fields)
        assert job.status is JobStatus.COMPLETED, job.failure
        assert f"from step {first}\n" in job.logs()
        assert "['a', 'b']" in job.logs()
        assert job.model_data == f"gs://{gcs}/jobs/{job.name}/output/model.tar.gz"
    stored = open_store(f"gs://{gcs}/jobs/{job.name}/output").read("model.tar.gz")
    with tarfile.open(fileobj=BytesIO(stored)) as model:
        member = model.extractfile("model.txt")
        assert member is not None and member.read() == b"step 6"
    listed = CliRunner().invoke(cli, ["checkpoints", "list", f"gs://{gcs}/checkpoints"])
    assert listed.exit_code == 0 and "6" in listed.output, listed.output
    downloaded = CliRunner().invoke(cli, ["download", job.name, "--to", str(tmp_path / "outputs")])
    assert downloaded.exit_code == 0, downloaded.output
    assert (tmp_path / "outputs" / "model.tar.gz").read_bytes() == stored
