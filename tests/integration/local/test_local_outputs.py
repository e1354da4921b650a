"""The outputs of jobs on several hosts are one result; a job without a model says where to write it."""

from __future__ import annotations

import os
import signal
import tarfile
from pathlib import Path

import pytest
from local_jobs import Run, events, folder, wait_for_end, wait_until

from cloudtrain import JobStatus
from cloudtrain.storage import open_store

EACH_HOST_SAVES = """
    import os
    from cloudtrain import environment

    rank = environment.rank()
    model = environment.model_dir()
    # the leader has more to pack, so another host is ready first
    (model / "weights").write_bytes(os.urandom(10_000_000) if rank == 0 else b"other")
    (model / "same").write_text("same")
    (model / f"shard-{rank}").write_text(str(rank))
    (environment.output_data_dir() / f"log-{rank}").write_text(str(rank))
"""


@pytest.mark.parametrize("storage", ["file", "s3"])
def test_the_model_of_all_hosts_is_one_archive(
    run: Run, tmp_path: Path, request: pytest.FixtureRequest, storage: str
) -> None:
    s3 = storage == "s3"
    out = f"s3://{request.getfixturevalue('s3')}/out" if s3 else (tmp_path / "out").as_uri()
    job = run(EACH_HOST_SAVES, instance_count=3, output_path=out)
    described = job.describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.model_data == f"{out}/{job.name}/output/model.tar.gz"
    assert described.output_data == f"{out}/{job.name}/output/output.tar.gz"
    model, output = job.download(tmp_path / "got")
    with tarfile.open(model) as archive:
        sizes = {member.name: member.size for member in archive}
    assert sizes == {"weights": 10_000_000, "same": 4, "shard-0": 1, "shard-1": 1, "shard-2": 1}
    with tarfile.open(output) as archive:
        assert archive.getnames() == ["log-0", "log-1", "log-2"]
    [warning] = described.warnings
    assert warning.startswith("model/weights differs between hosts: ")
    assert "algo-1" in warning
    assert job.logs().count(f"[cloudtrain] {warning}\n") == 1
    left = [entry.key for entry in open_store(f"{out}/{job.name}/output").list()]
    assert left == ["model.tar.gz", "output.tar.gz"]


def test_uncompressed_outputs_of_all_hosts_are_one_folder(run: Run, tmp_path: Path) -> None:
    job = run(EACH_HOST_SAVES, instance_count=2, disable_output_compression=True)
    assert (job.model_data or "").endswith("/output/model")
    model, output = job.download(tmp_path / "got")
    assert sorted(path.name for path in model.iterdir()) == ["same", "shard-0", "shard-1", "weights"]
    assert (model / "weights").stat().st_size == 10_000_000
    assert sorted(path.name for path in output.iterdir()) == ["log-0", "log-1"]


def test_a_host_that_is_killed_while_outputs_are_merged_leaves_no_archive(run: Run, tmp_path: Path) -> None:
    """The leader is paused when the follower has uploaded its share, and then killed; the job restarts."""
    script = """
        import os
        from cloudtrain import environment

        attempt = os.environ["CLOUDTRAIN_ATTEMPT"]
        (environment.model_dir() / f"{attempt}-{environment.rank()}").write_bytes(os.urandom(40_000_000))
    """
    out = tmp_path / "out"
    job = run(
        script,
        instance_count=2,
        output_path=out.as_uri(),
        max_retry_attempts=1,
        job_name="killed",
        wait=False,
    )
    results = out / "killed" / "output"
    wait_until(lambda: list(results.glob(".cloudtrain-part-*")), "the share of the follower")
    [leader] = [
        event["pid"] for event in events(job, "host") if event["source"] == "algo-1" and event["attempt"] == 0
    ]
    os.kill(leader, signal.SIGKILL)
    assert not (results / "model.tar.gz").exists()
    wait_for_end(job)
    described = job.describe()
    assert (described.status, described.attempt) == (JobStatus.COMPLETED, 1), described.failure
    [model] = job.download(tmp_path / "got")
    with tarfile.open(model) as archive:
        assert archive.getnames() == ["1-0", "1-1"]
    assert [path.name for path in results.iterdir()] == ["model.tar.gz"]
    assert not list(folder(job).path.glob("hosts/*/.upload-*"))


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_model_in_the_working_folder_is_pointed_out(run: Run, hosts: int) -> None:
    script = """
        import os
        os.makedirs("saved/1")
        for name in ("model.pt", "saved/1/saved_model.pb", "notes.txt"):
            open(name, "w").close()
    """
    job = run(script, instance_count=hosts)
    [line] = [line for line in job.logs().splitlines() if "SM_MODEL_DIR" in line]
    assert line.startswith("[cloudtrain] the job has no model: the script wrote model.pt, saved/1 into its")
    assert list(job.describe().warnings) == [line[len("[cloudtrain] ") :]]


def test_a_job_with_a_model_gets_no_advice_about_models(run: Run) -> None:
    script = """
        import os
        open("copy.pt", "w").close()
        if os.environ["SM_CURRENT_HOST"] == "algo-2":
            open(os.environ["SM_MODEL_DIR"] + "/model.pt", "w").close()
    """
    assert "SM_MODEL_DIR" not in run(script, instance_count=2).logs()
