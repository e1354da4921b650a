"""Inputs and outputs of jobs, at file:// URIs and on a real S3 server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from local_jobs import Run, folder, wait_until, write

from cloudtrain import JobStatus, TrainingInput
from cloudtrain.contract import Paths
from cloudtrain.contract.channels import ChannelInput
from cloudtrain.errors import AccessDenied, NotFound, StorageError
from cloudtrain.observe import EventLog, read_events
from cloudtrain.platforms import get_platform
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs.fetch import fetch_channel
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.storage import open_store, upload_tree
from cloudtrain.storage.client import connection

LIST_CHANNEL = """
    import os
    root = os.environ["SM_CHANNEL_TRAIN"]
    files = [os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names]
    print(sorted(os.path.relpath(file, root) for file in files))
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a", "b", "c", "sub/d é"):
        write(tmp_path / "data", name, name)
    return tmp_path / "data"


@pytest.fixture(params=["file", "s3"])
def channel(request: pytest.FixtureRequest, data: Path) -> str:
    """The same data at a file:// and at an s3:// URI."""
    if request.param == "file":
        return data.as_uri()
    bucket = request.getfixturevalue("s3")
    for path in data.rglob("*"):
        if path.is_file():
            open_store(f"s3://{bucket}/data").upload(path, path.relative_to(data).as_posix())
    return f"s3://{bucket}/data"


def test_a_channel_exists_on_every_host(run: Run, channel: str) -> None:
    job = run(LIST_CHANNEL, {"train": channel}, instance_count=2)
    assert sorted(job.logs().splitlines()) == [f"[rank {rank}] ['a', 'b', 'c', 'sub/d é']" for rank in (0, 1)]


def test_a_sharded_channel_is_divided_by_key(run: Run, channel: str) -> None:
    job = run(
        LIST_CHANNEL, {"train": TrainingInput(channel, distribution="ShardedByS3Key")}, instance_count=2
    )
    assert sorted(job.logs().splitlines()) == ["[rank 0] ['a', 'c']", "[rank 1] ['b', 'sub/d é']"]


def test_a_channel_may_be_one_object(run: Run, channel: str) -> None:
    job = run(LIST_CHANNEL, {"train": f"{channel}/b"})
    assert job.logs() == "[rank 0] ['b']\n"


@pytest.mark.parametrize(("uri", "listings"), [("s3://{}/data/b", 0), ("s3://{}/data", 1)])
def test_a_prefix_is_listed_once_and_one_object_never(
    s3: str, data: Path, tmp_path: Path, uri: str, listings: int
) -> None:
    upload_tree(data, open_store(f"s3://{s3}/data"))
    asked: list[str] = []
    config = HostConfig.read(Paths(tmp_path / "ml"), {})
    connection().client.meta.events.register(
        "before-call.s3", lambda model, **_: asked.append(model.name), unique_id="asked"
    )
    fetch_channel(config, ChannelInput("train", uri.format(s3)), lambda _: None, lambda _: None)
    connection().client.meta.events.unregister("before-call.s3", unique_id="asked")
    assert (config.paths.channel("train") / "b").read_text() == "b"
    assert asked.count("GetObject") >= 1
    assert asked.count("ListObjectsV2") == listings


def test_a_prefix_may_end_inside_a_name_as_on_sagemaker(s3: str, data: Path, tmp_path: Path) -> None:
    upload_tree(data, open_store(f"s3://{s3}/data"))
    config = HostConfig.read(Paths(tmp_path / "ml"), {})
    fetch_channel(config, ChannelInput("train", f"s3://{s3}/da"), lambda _: None, lambda _: None)
    assert (config.paths.channel("train") / "data" / "b").read_text() == "b"


def test_a_folder_of_this_machine_needs_no_uri(run: Run, data: Path) -> None:
    job = run(LIST_CHANNEL, {"train": os.path.relpath(data)})
    assert "'a', 'b', 'c'" in job.logs()


def test_an_empty_or_missing_channel_is_refused_at_submit(run: Run, tmp_path: Path, s3: str) -> None:
    (tmp_path / "empty").mkdir()
    for uri in ((tmp_path / "empty").as_uri(), (tmp_path / "nosuch").as_uri(), f"s3://{s3}/nosuch"):
        with pytest.raises(NotFound, match=f"channel 'train': there is nothing at {uri}"):
            run("print('x')", {"train": uri})
    assert list(get_platform("local").list()) == []


def test_a_bucket_that_is_missing_or_forbidden_starts_nothing(
    run: Run, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="no-such-bucket-here"):
        run("print('x')", {"train": "s3://no-such-bucket-here/x"})
    with pytest.raises(NotFound, match="no-such-bucket-here"):
        run("print('x')", output_path="s3://no-such-bucket-here/x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(AccessDenied, match=s3):
        run("print('x')", {"train": f"s3://{s3}/x"})
    assert list(get_platform("local").list()) == []


def test_model_and_outputs_go_to_the_output_path(run: Run, s3: str, tmp_path: Path) -> None:
    job = run(
        """
        import os
        for variable in ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"):
            open(os.path.join(os.environ[variable], "f"), "w").write(variable)
        """,
        output_path=f"s3://{s3}/out",
        job_name="leaves",
    )
    assert job.model_data == f"s3://{s3}/out/leaves/output/model.tar.gz"
    keys = [entry.key for entry in open_store(f"s3://{s3}/out").list()]
    assert keys == ["leaves/output/model.tar.gz", "leaves/output/output.tar.gz"]
    assert [path.name for path in job.download(tmp_path)] == ["model.tar.gz", "output.tar.gz"]
    assert subprocess.check_output(["tar", "xzOf", tmp_path / "model.tar.gz", "f"]) == b"SM_MODEL_DIR"


def test_outputs_may_stay_uncompressed(run: Run, tmp_path: Path) -> None:
    job = run(
        """
        import os
        os.chdir(os.environ["SM_MODEL_DIR"])
        os.mkdir("a")
        open("a/b", "w").write("c")
        """,
        output_path=(tmp_path / "out").as_uri(),
        disable_output_compression=True,
    )
    assert (tmp_path / "out" / job.name / "output" / "model" / "a" / "b").read_text() == "c"
    [downloaded] = job.download(tmp_path / "got")
    assert (downloaded / "a" / "b").read_text() == "c"


def test_a_failed_job_leaves_its_outputs_and_no_model(run: Run, tmp_path: Path) -> None:
    job = run(
        """
        import os
        for variable in ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"):
            open(os.path.join(os.environ[variable], "f"), "w").close()
        raise ValueError("x")
        """,
        output_path=(tmp_path / "out").as_uri(),
    )
    assert [path.name for path in (tmp_path / "out" / job.name / "output").iterdir()] == ["output.tar.gz"]


def test_the_checkpoints_folder_is_synced_and_restored(run: Run, s3: str) -> None:
    script = """
        import os, pathlib, time
        folder = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"], "checkpoints")
        print(sorted(path.name for path in folder.iterdir()), flush=True)
        (folder / "one").write_text("1")
        time.sleep({sleep})
        (folder / "two").write_text("2")
    """
    arguments = {"checkpoint_s3_uri": f"s3://{s3}/ckpt"}
    first = run(script.format(sleep=30), wait=False, **arguments)
    store = open_store(f"s3://{s3}/ckpt")
    wait_until(lambda: [entry.key for entry in store.list()] == ["one"], "the sync while the job runs")
    first.stop()
    second = run(script.format(sleep=0), **arguments)
    assert second.logs() == "[rank 0] ['one']\n"
    assert [entry.key for entry in store.list()] == ["one", "two"]


def test_the_sync_uploads_what_only_this_folder_has(tmp_path: Path) -> None:
    """As after a restart in place: some files came from the URI, and one only exists locally."""
    there, here = tmp_path / "there", write(tmp_path / "here", "mine", "never uploaded")
    write(there, "theirs", "1")
    sync = CheckpointSync(here, there.as_uri(), EventLog(tmp_path / "events", "algo-1"))
    sync.restore()
    (there / "theirs").unlink()
    sync.finish()
    assert (here / "theirs").read_text() == "1"
    assert [path.name for path in there.iterdir()] == ["mine"]


def test_the_sync_continues_after_a_failed_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.runtime.outputs.checkpoint_sync.SYNC_SECONDS", 0.05)
    here, there = write(tmp_path / "here", "a", "1"), tmp_path / "there"
    there.touch()  # nothing can be written below a file
    sync = CheckpointSync(here, there.as_uri(), EventLog(tmp_path / "events", "algo-1"))
    sync.start()
    wait_until(lambda: read_events(tmp_path / "events"), "the warning")
    there.unlink()
    wait_until((there / "a").exists, "the upload")
    sync.finish()
    first = read_events(tmp_path / "events")[0]
    assert first["event"] == "warning"
    assert "cannot sync checkpoints" in first["message"]


def test_the_source_is_uploaded_once(run: Run, s3: str) -> None:
    for _ in range(2):
        job = run("print('x')", code_location=f"s3://{s3}/code")
        assert job.status == JobStatus.COMPLETED
    [entry] = open_store(f"s3://{s3}/code").list()
    assert entry.key.endswith("/sourcedir.tar.gz")


def test_a_modified_source_does_not_run(run: Run, s3: str) -> None:
    run("print('x')", code_location=f"s3://{s3}/code")
    store = open_store(f"s3://{s3}/code")
    [entry] = store.list()
    store.write(entry.key, b"something else")
    job = run("print('x')", code_location=f"s3://{s3}/code")
    assert job.failure
    assert (job.failure.phase, job.failure.rank) == ("unpack", None)


def test_a_full_disk_while_unpacking(small_disk: None, run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "src", "train.py", "print('never')")
    (source / "big").write_bytes(bytes(8_000_000))
    job = run(source)
    assert job.failure
    assert (str(job.failure.failure_class), job.failure.phase) == ("disk-full", "unpack")
    assert not list(folder(job).host("algo-1").code.iterdir())


def test_an_unreachable_server_is_reported_at_submit(
    run: Run, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1"):
        run("print('x')", {"train": f"s3://{s3}/x"})


def test_a_model_to_start_from_is_a_channel(run: Run, data: Path) -> None:
    job = run("import os; print(os.listdir(os.environ['SM_CHANNEL_MODEL']))", model_uri=(data / "a").as_uri())
    assert job.logs() == "[rank 0] ['a']\n"
