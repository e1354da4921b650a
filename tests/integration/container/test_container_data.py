"""The inputs and outputs of containers: channels, source, checkpoints, secrets, model and other outputs."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from container_jobs import folder_of, jobs_in, wait_for_end, wait_until
from engine_daemon import IMAGE, USER, Engine
from file_contents import file_contents

from cloudtrain import JobStatus, TrainingInput
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.storage import open_store, split_uri
from cloudtrain.storage.mount import mounts_below, why_no_mounts

REPORTS_INPUTS = """
    import json, os
    def texts(folder):
        files = [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]
        return {os.path.relpath(path, folder): open(path).read() for path in files}
    def is_refused(path):
        try:
            open(path, "w").close()
        except OSError:
            return True
        return False
    base, host = "/opt/ml", os.environ["SM_CURRENT_HOST"]
    channels = json.loads(os.environ["SM_CHANNELS"])
    checkpoints = os.environ.get("MY_CHECKPOINTS", base + "/checkpoints")
    seen = {
        "user": os.getuid(),
        "channels": {name: texts(f"{base}/input/data/{name}") for name in channels},
        "data_is_read_only": is_refused(base + "/input/data/whole/new"),
        "secret": os.environ["WANDB_API_KEY"],
        "checkpoints": sorted(os.listdir(checkpoints)),
        "volume": texts("/extra") if os.path.isdir("/extra") else None,
        "pipes": [open(base + f"/input/data/pipe_{epoch}").read() for epoch in (0, 1)] if "pipe" in channels else None,
    }
    json.dump(seen, open(f"{os.environ['SM_MODEL_DIR']}/{host}.json", "w"))
    json.dump(host, open(os.environ["SM_OUTPUT_DATA_DIR"] + "/host.json", "w"))
    os.umask(0o077)
    os.makedirs(f"{checkpoints}/step-000000000001/save-{host}")
    open(f"{checkpoints}/{host}.pt", "w").write(host)
    open(f"{checkpoints}/step-000000000001/save-{host}/tree.json", "w").write("tree")
    open(f"{checkpoints}/step-000000000001/manifest.json", "w").write("manifest")
"""
SECRET = {"WANDB_API_KEY": "k-123456"}


@pytest.fixture
def restrictive_umask() -> Iterator[None]:
    """A umask that makes new files private to this user."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_folders_of_this_machine(engine: Engine, tmp_path: Path, restrictive_umask: None) -> None:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for name in ("a", "b", "c", "sub/d"):
        (data / name).write_text(name)
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "vocabulary").write_text("words")
    for path in (
        tmp_path,
        *tmp_path.rglob("*"),
    ):  # cloudtrain does not change the permissions of the user's data
        path.chmod(0o755)
    with closing(docker.APIClient(engine.url)) as api:  # an image whose user is not root
        container = api.create_container(IMAGE, ["true"])
        api.commit(container, "unprivileged", changes=[f"USER {USER}"])
        api.remove_container(container)
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            REPORTS_INPUTS,
            {
                "whole": data.as_uri(),
                "one": (data / "b").as_uri(),
                "part": TrainingInput(data.as_uri(), distribution="ShardedByS3Key"),
            },
            instance_count=2,
            image_uri="unprivileged",
            environment={**SECRET, "MY_CHECKPOINTS": "/saved/here"},
            checkpoint_s3_uri=(tmp_path / "saved").as_uri(),
            checkpoint_local_path="/saved/here",
            options={"volumes": [f"{tmp_path}/extra:/extra:ro"]},
        )
        described = wait_for_end(job).describe()
        assert described.status == JobStatus.COMPLETED, job.logs()
        first, second = (_seen(described.model_data, host) for host in ("algo-1", "algo-2"))
        assert first["user"] == 1000
        assert first["channels"] == {
            "whole": {"a": "a", "b": "b", "c": "c", "sub/d": "sub/d"},
            "one": {"b": "b"},
            "part": {"a": "a", "c": "c"},
        }
        assert second["channels"]["part"] == {"b": "b", "sub/d": "sub/d"}
        assert first["data_is_read_only"]
        assert (first["volume"], first["secret"]) == ({"vocabulary": "words"}, "k-123456")
        assert not (data / "new").exists()
        folder = folder_of(job).path
        assert sorted(path.name for path in (tmp_path / "saved").glob("*.pt")) == [
            "algo-1.pt",
            "algo-2.pt",
        ]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700  # inside it, the image's user may write
        leaks = [path for path, data in file_contents(folder) if b"k-123456" in data]
        assert {path.name for path in leaks} == {"algo-1.json", "algo-2.json"}  # written by the script itself
    assert engine.leftovers() == []


def test_s3(engine: Engine, tmp_path: Path, s3: str) -> None:
    store = open_store(f"s3://{s3}/data")
    for name in ("a", "b", "sub/c"):
        store.write(name, name.encode())
    open_store(f"s3://{s3}/saved").write("earlier.pt", b"earlier")
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            REPORTS_INPUTS,
            {
                "whole": TrainingInput(f"s3://{s3}/data", input_mode="FastFile"),
                "part": TrainingInput(f"s3://{s3}/data", distribution="ShardedByS3Key"),
                "one": TrainingInput(f"s3://{s3}/data/b", input_mode="FastFile"),
                "fast": TrainingInput(
                    f"s3://{s3}/data", distribution="ShardedByS3Key", input_mode="FastFile"
                ),
                "pipe": TrainingInput(f"s3://{s3}/data", distribution="ShardedByS3Key", input_mode="Pipe"),
            },
            instance_count=2,
            environment=SECRET,
            output_path=f"s3://{s3}/out",
            checkpoint_s3_uri=f"s3://{s3}/saved",
            code_location=f"s3://{s3}/code",
        )
        described = wait_for_end(job).describe()
        assert described.status == JobStatus.COMPLETED, (
            job.logs(),
            described.failure and described.failure.message,
        )
        first, second = (_seen(described.model_data, host) for host in ("algo-1", "algo-2"))
        assert first["channels"] == {
            "whole": {"a": "a", "b": "b", "sub/c": "sub/c"},
            "part": {"a": "a", "sub/c": "sub/c"},
            "one": {"b": "b"},
            "fast": {"a": "a", "sub/c": "sub/c"},
            "pipe": {},
        }
        assert first["pipes"] == ["asub/c"] * 2
        assert second["channels"]["part"] == second["channels"]["fast"] == {"b": "b"}
        assert second["pipes"] == ["b"] * 2
        assert first["data_is_read_only"]
        assert "earlier.pt" in first["checkpoints"]
        # the engine of these tests has its own mounts: it would give the container an empty folder
        assert job.logs().count("FastFile copies the data: ") == 3
        assert mounts_below(folder_of(job).path) == []
        assert described.model_data == f"s3://{s3}/out/{job.name}/output/model.tar.gz"
        saved = [entry.key for entry in open_store(f"s3://{s3}/saved").list()]
        assert sorted(saved) == [
            *("algo-1.pt", "algo-2.pt", "earlier.pt", "step-000000000001/manifest.json"),
            *(f"step-000000000001/save-algo-{number}/tree.json" for number in (1, 2)),
        ]
        downloaded = job.download(tmp_path / "results")
        assert sorted(path.name for path in downloaded) == ["model.tar.gz", "output.tar.gz"]
        with tarfile.open(downloaded[1]) as archive:
            file = archive.extractfile("host.json")
            assert file
            assert json.load(file) == "algo-1"  # the leader's
        [warning] = described.warnings
        assert warning.startswith("output/data/host.json differs between hosts")
        assert job.logs().count(warning) == 1
    assert engine.leftovers() == []


def _seen(model: str | None, host: str) -> dict[str, Any]:
    """The inputs that a host saw, which the script saved in its model."""
    assert model
    parent, name = split_uri(model)
    with tarfile.open(fileobj=io.BytesIO(open_store(parent).read(name))) as archive:
        file = archive.extractfile(f"{host}.json")
        assert file
        seen: dict[str, Any] = json.load(file)
    return seen


def test_a_pipe_whose_data_vanishes_fails_the_job(engine: Engine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "b"):
        (data / name).write_text(name)
    script = """
        import os, time
        print("ready", flush=True)
        while not os.path.exists("/data/gone"):
            time.sleep(0.05)
        open("/opt/ml/input/data/train_0").read()
        print("complete")
    """
    with jobs_in(engine, tmp_path) as jobs:
        pipe = TrainingInput(data.as_uri(), input_mode="Pipe")
        job = jobs.start(script, {"train": pipe}, options={"volumes": [f"{data}:/data:ro"]})
        wait_until(lambda: "ready" in job.logs(), "the script")
        (data / "b").unlink()
        (data / "gone").touch()
        failure = wait_for_end(job).describe().failure
        assert failure, job.logs()
        assert "data/b does not exist" in failure.message
        assert "complete" not in job.logs()


def test_fast_file_mounts_s3_where_the_engine_sees_it(engine: Engine, tmp_path: Path, s3: str) -> None:
    """The job runs among the mounts of the engine."""
    if why := why_no_mounts(for_others=True):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", why
        pytest.skip(why)
    store = open_store(f"s3://{s3}/data")
    for name in ("a", "b", "sub/c"):
        store.write(name, name.encode())
    script = """
        import os
        for channel in ("fast", "one"):
            root = os.environ["SM_CHANNEL_" + channel.upper()]
            files = [os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names]
            print(channel, sorted(open(file).read() for file in files), flush=True)
        """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    (tmp_path / "job.json").write_text(json.dumps({
        "entry_point": "train.py", "source_dir": str(tmp_path), "image_uri": IMAGE, "platform": "container",
        "platform_options": {"engine": engine.url}, "input_mode": "FastFile", "job_name": "fast",
        "inputs": {"fast": f"s3://{s3}/data", "one": f"s3://{s3}/data/b"},
    }))  # fmt: skip
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(engine.url.removeprefix("unix://"))
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    enter = ["nsenter", "--mount", "--pid", "--target", str(pid), f"--wdns={tmp_path}"]
    submit = [sys.executable, "-m", "cloudtrain", "submit", str(tmp_path / "job.json")]
    done = subprocess.run([*enter, *submit], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "rank 0" in line or "FastFile" in line]
    assert lines == ["[rank 0] fast ['a', 'b', 'sub/c']", "[rank 0] one ['b']"]
    folder = JobFolder.of("container", "fast").path
    assert mounts_below(folder, Path(f"/proc/{pid}/mountinfo")) == []
    assert not (folder / "data").exists()
