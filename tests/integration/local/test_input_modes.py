"""FastFile and Pipe mode on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import botocore
import pytest
from click.testing import CliRunner
from local_jobs import Run, folder, wait_for_end, wait_until, write

from cloudtrain import JobStatus, TrainingInput
from cloudtrain.cli import cli
from cloudtrain.storage import open_store
from cloudtrain.storage.mount import mounts_below, why_no_mounts

SIZE = 3_000_000

READS = """
    import glob, os
    root = os.environ["SM_CHANNEL_TRAIN"]
    files = [os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names]
    names = sorted(os.path.relpath(path, root) for path in files)
    print(names)
    with open(f"{root}/{names[-1]}", "rb") as file:
        file.seek(-3, 2)
        print(file.read(), os.path.islink(root))
    try:
        open(f"{root}/new", "w")
    except OSError as error:
        print("read-only:", error.strerror)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    lines = [open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/cmdline") if os.path.exists(path)]
    clients = [line for line in lines if b"rclone" in line and root.split("/input/")[0].encode() in line]
    print("clients", len(clients), any(secret in line for line in lines))
"""
HOLDS = """
    import os, time
    file = open(os.environ["SM_CHANNEL_TRAIN"] + "/a", "rb")
    print("open", flush=True)
    time.sleep(600)
"""
TWO_EPOCHS = """
    import os
    for epoch in range(2):
        with open(f"{os.environ['SM_CHANNEL_TRAIN']}_{epoch}", "rb") as pipe:
            print(epoch, len(pipe.read()), flush=True)
"""


@pytest.fixture
def can_mount() -> None:
    why = why_no_mounts()
    if why and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@pytest.fixture
def fast_file(s3: str) -> TrainingInput:
    store = open_store(f"s3://{s3}/data")
    store.write("a", b"first")
    store.write("sub/b é", bytes(SIZE) + b"end")
    return TrainingInput(f"s3://{s3}/data", input_mode="FastFile")


def test_fast_file_reads_s3_on_demand(can_mount: None, run: Run, fast_file: TrainingInput) -> None:
    job = run(READS, {"train": fast_file})
    assert job.logs().splitlines() == [
        "[rank 0] ['a', 'sub/b é']",
        "[rank 0] b'end' True",
        "[rank 0] read-only: Read-only file system",
        "[rank 0] clients 2 False",  # rclone, and what ends it
    ]
    assert mounts_below(folder(job).path) == []


def test_fast_file_takes_one_object_or_a_share_of_them(
    can_mount: None, run: Run, fast_file: TrainingInput
) -> None:
    listing = "import os; print(sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])))"
    one = TrainingInput(f"{fast_file.s3_data}/a", input_mode="FastFile")
    share = TrainingInput(fast_file.s3_data, input_mode="FastFile", distribution="ShardedByS3Key")
    assert run(listing, {"train": one}).logs() == "[rank 0] ['a']\n"
    job = run(listing, {"train": share}, instance_count=2)
    assert sorted(job.logs().splitlines()) == ["[rank 0] ['a']", "[rank 1] ['sub']"]


def test_fast_file_with_the_certificates_of_a_proxy(
    can_mount: None, run: Run, fast_file: TrainingInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(Path(botocore.__file__).parent / "cacert.pem"))
    job = run("import os; print(os.path.islink(os.environ['SM_CHANNEL_TRAIN']))", {"train": fast_file})
    assert job.logs() == "[rank 0] True\n"


def test_channels_are_not_mounted_where_fusermount_cannot_become_root(can_mount: None) -> None:
    script = "from cloudtrain.storage.mount import why_no_mounts; print(why_no_mounts())"
    command = ["unshare", "--user", "--map-user=1000", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "fusermount has no effect in a user namespace" in done.stdout


def test_fast_file_reports_that_it_copies(
    run: Run, fast_file: TrainingInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job = run(READS, {"train": fast_file})
    lines = job.logs().splitlines()
    assert lines[0].startswith(
        "[cloudtrain] channel train: FastFile copies the data: rclone is not installed"
    )
    assert lines[1:3] == ["[rank 0] ['a', 'sub/b é']", "[rank 0] b'end' False"]


def test_fast_file_links_a_folder_of_this_machine(run: Run, tmp_path: Path) -> None:
    data = write(tmp_path / "data", "a", "a")
    job = run(
        "import os; print(os.path.realpath(os.environ['SM_CHANNEL_TRAIN']))",
        {"train": TrainingInput(data.as_uri(), input_mode="FastFile")},
    )
    assert job.logs() == f"[rank 0] {data}\n"


@pytest.mark.parametrize("private", [True, False], ids=["private", "visible"])
def test_mounts_end_with_a_job_that_is_killed(
    can_mount: None, run: Run, fast_file: TrainingInput, private: bool
) -> None:
    """In the mount namespace of the job's /opt/ml, no other process sees them."""
    job = run(HOLDS, {"train": fast_file}, platform_options={"mount_opt_ml": private}, wait=False)
    wait_until(lambda: "open" in job.logs(), "the script")
    assert len(mounts_below(folder(job).path)) == (0 if private else 1)
    assert _clients(folder(job).path)
    os.kill(folder(job).read_record().pid or 0, signal.SIGKILL)
    wait_until(lambda: not mounts_below(folder(job).path), "the end of the mount")
    wait_until(lambda: not _clients(folder(job).path), "the end of rclone")


def test_clean_removes_abandoned_mounts(can_mount: None, run: Run, fast_file: TrainingInput) -> None:
    job = run(HOLDS, {"train": fast_file}, platform_options={"mount_opt_ml": False}, wait=False)
    wait_until(lambda: "open" in job.logs(), "the script")
    for victim in (*_guard_and_runtime(folder(job).path), folder(job).read_record().pid or 0):
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not folder(job).is_locked(), "the end of the job")
    [mount] = mounts_below(folder(job).path)
    done = CliRunner().invoke(cli, ["clean"])
    assert f"mount  {mount}" in done.output
    assert mounts_below(folder(job).path) == []


def _clients(path: Path) -> list[bytes]:
    """The command lines of the processes that serve the mounts below ``path``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"rclone" in command and str(path).encode() in command:
                found.append(command)
    return found


def _guard_and_runtime(path: Path) -> list[int]:
    """The process that holds the mount of a job, and the runtime that started it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"mount_guard" in command and str(path).encode() in command:
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                return [int(process.name), int(parent)]
    raise AssertionError("there is no mount")


def test_pipe_mode_streams_every_epoch(run: Run, fast_file: TrainingInput) -> None:
    job = run(TWO_EPOCHS, {"train": TrainingInput(fast_file.s3_data, input_mode="Pipe")})
    assert job.logs() == f"[rank 0] 0 {SIZE + 8}\n[rank 0] 1 {SIZE + 8}\n"


@pytest.mark.parametrize(
    "script", ["print('no pipe')", "import os; open(os.environ['SM_CHANNEL_TRAIN'] + '_0').read(1)"]
)
def test_a_script_that_does_not_read_its_pipe_ends_its_job(
    run: Run, fast_file: TrainingInput, script: str
) -> None:
    job = run(script, {"train": fast_file.s3_data}, input_mode="Pipe")
    assert job.status == JobStatus.COMPLETED


def test_a_script_that_dies_at_its_pipe_fails_its_job(run: Run, fast_file: TrainingInput) -> None:
    script = "import os; open(os.environ['SM_CHANNEL_TRAIN'] + '_0').read(1); os._exit(3)"
    job = run(script, {"train": fast_file.s3_data}, input_mode="Pipe")
    assert job.failure
    assert job.failure.exit_code == 3


def test_data_that_vanishes_while_it_is_streamed_fails_the_job(
    run: Run, fast_file: TrainingInput, tmp_path: Path
) -> None:
    script = f"""
        import os
        os.unlink({str(tmp_path / "data" / "b")!r})
        open(os.environ["SM_CHANNEL_TRAIN"] + "_0", "rb").read()
        print("complete")
    """
    data = write(tmp_path / "data", "a", "a")
    write(data, "b", "b")
    job = run(script, {"train": data.as_uri()}, input_mode="Pipe")
    assert job.failure
    assert "data/b does not exist" in job.failure.message
    assert "complete" not in job.logs()
    wait_for_end(job)
