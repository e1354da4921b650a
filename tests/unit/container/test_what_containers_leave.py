"""A container leaves links, pipes and devices: they are not uploaded, and one warning names them."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudtrain._system.processes import identity
from cloudtrain.contract import (
    FailureClass,
    FailureReport,
    Host,
    JobStatus,
    Launcher,
    Paths,
    Settings,
)
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.observe import EventLog
from cloudtrain.platforms.container import ContainerPlatform
from cloudtrain.platforms.supervised import pending_upload
from cloudtrain.platforms.supervised.pending_upload import save_outputs, upload_pending
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.outputs.host_outputs import OutputUpload
from cloudtrain.runtime.outputs.upload import upload_outputs
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts, read_left
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import retry_policy as patience

SECRET = "the secret of the host"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def leave_special_files(folder: Path, secret: Path) -> list[str]:
    """Fill a folder with everything but files. Returns how a warning lists it."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    (folder / "file-link").symlink_to(secret)
    (folder / "folder-link").symlink_to(secret.parent)
    (folder / "up").symlink_to("..")
    found = [
        *("file-link (a link out of its folder)", "folder-link (a link out of its folder)"),
        *("pipe (a named pipe)", "socket (a socket)", "up (a link out of its folder)"),
    ]
    if os.geteuid() == 0:
        os.mknod(folder / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
        found.insert(0, "disk (a device)")
    return found


def upload(base: Path, tmp_path: Path, **settings: Any) -> tuple[dict[str, bytes], list[str]]:
    """The content at the output URI, and the warnings, after the outputs of a host were uploaded."""
    config = HostConfig(
        Paths(base), Settings(output_uri=(tmp_path / "out").as_uri(), **settings),
        Host("algo-1", ("algo-1",)), {}, (), {}, Launcher(), ("algo-1",),
    )  # fmt: skip
    results = upload_outputs([config], lambda count: None, scratch=tmp_path)
    out = tmp_path / "out"
    files = [path for path in out.rglob("*") if path.is_file()]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}, results.warnings


def unpacked(archive: bytes) -> dict[str, str | bytes]:
    """The members of an archive: the content of files, the targets of links."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name: file.read()
            if member.isreg() and (file := tar.extractfile(member))
            else member.linkname
            for member in tar
        }


@pytest.mark.parametrize("compressed", [True, False])
def test_outputs_have_nothing_from_outside(tmp_path: Path, secret: Path, compressed: bool) -> None:
    base = tmp_path / "algo-1"
    listed = leave_special_files(base / "model", secret)
    (base / "code").mkdir()
    (base / "code" / "train.py").write_text("code")
    (base / "model" / "weights").write_bytes(b"weights")
    (base / "model" / "latest").symlink_to("weights")
    (base / "model" / "same").symlink_to("/opt/ml/model/weights")
    (base / "model" / "code").symlink_to("/opt/ml/code/train.py")
    found, warnings = upload(base, tmp_path, compress_output=compressed)
    if compressed:
        model = unpacked(found.pop("model.tar.gz"))
        assert model == {"weights": b"weights", "latest": "weights", "same": "weights"}
    else:
        assert found == {f"model/{name}": b"weights" for name in ("weights", "latest", "same")}
    assert SECRET.encode() not in b"".join(found.values())
    [warning] = warnings
    everything = sorted([*listed, "code (a link out of its folder)"])
    for what in everything[:5]:
        assert f"model/{what}" in warning
    assert warning.startswith("not uploaded: ")
    assert f" and {len(everything) - 5} more. " in warning


@pytest.mark.parametrize("replaced", ["model", "output", "output/data"])
def test_a_folder_of_outputs_that_is_a_link_is_not_uploaded(
    tmp_path: Path, secret: Path, replaced: str
) -> None:
    base = tmp_path / "algo-1"
    (base / "output").mkdir(parents=True)
    if replaced == "output":
        (base / "output").rmdir()
    (secret.parent / "data").mkdir()
    (secret.parent / "data" / "secret").write_text(SECRET)
    (base / replaced).symlink_to(secret.parent)
    found, warnings = upload(base, tmp_path)
    assert found == {}
    why = "output is a link or a file" if replaced == "output" else "it is a link"
    [warning] = warnings
    assert warning == (
        f"nothing in {'output/data' if replaced == 'output' else replaced} was uploaded: {why}, not a folder. "
        "Copy the files into a folder of that name."
    )


@pytest.mark.parametrize("compressed", [True, False])
def test_names_that_are_not_utf_8(tmp_path: Path, compressed: bool) -> None:
    base, name = tmp_path / "algo-1", os.fsdecode(b"weights-\xff")
    (base / "model").mkdir(parents=True)
    (base / "model" / name).write_bytes(b"odd")
    (base / "model" / "weights").write_bytes(b"even")
    found, warnings = upload(base, tmp_path, compress_output=compressed)
    if compressed:
        assert unpacked(found["model.tar.gz"]) == {name: b"odd", "weights": b"even"}
        assert warnings == []
    else:
        assert found == {"model/weights": b"even"}
        [warning] = warnings
        assert r"'model/weights-\udcff' (a name that is not UTF-8)" in warning


def synced(here: Path, there: Path, **options: Any) -> CheckpointSync:
    events = EventLog(here.parent / "events", "supervisor")
    return CheckpointSync(here, there.as_uri(), events, whole=True, **options)


def test_checkpoints_have_nothing_from_outside(tmp_path: Path, secret: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    listed = leave_special_files(here, secret)
    (here / "best.pt").write_text("best")
    (here / "latest.pt").symlink_to("best.pt")
    (here / "same.pt").symlink_to("/saved/best.pt")
    (here / os.fsdecode(b"\xff")).write_text("odd")
    warnings = synced(here, there, path="/saved").flush()
    assert {path.name: path.read_text() for path in there.iterdir()} == dict.fromkeys(
        ("best.pt", "latest.pt", "same.pt"), "best"
    )
    [warning] = warnings
    for what in sorted([*listed])[:4]:
        assert f"checkpoints/{what}" in warning


def test_checkpoints_that_cannot_be_uploaded_do_not_keep_the_model_from_its_place(tmp_path: Path) -> None:
    """By the supervisor of containers, by the runtime of one host, and by that of the first of several."""
    saved, out = tmp_path / "saved", tmp_path / "out"
    saved.touch()  # nothing can be written below a file
    folder, log = JobFolder(tmp_path / "job"), EventLog(tmp_path / "events", "algo-1")
    settings = Settings(output_uri=out.as_uri(), checkpoint_uri="s3://bucket/saved")
    paths = folder.host("algo-1")
    paths.make()
    (paths.model / "weights").write_text("weights")
    (paths.checkpoints / "last.pt").write_text("checkpoint")
    sync = synced(paths.checkpoints, saved)
    config = HostConfig(paths, settings, Host("algo-1", ("algo-1",)), {}, (), {}, Launcher(), ("algo-1",))
    alone, first = (OutputUpload(config, Phases(log), log, lambda message: None, sync, 0.0) for _ in range(2))

    def with_others() -> None:
        first.list_files()
        first.share({"give": [[0, 1]], "compare": [], "parts": "token"})
        first.assemble({"givers": {"model": ["algo-1"]}, "warnings": []})

    def by_supervisor() -> None:
        warnings, report = save_outputs(
            folder, settings, ["algo-1"], Phases(log), failed=False, flush=sync.flush
        )
        assert not warnings
        assert report
        assert report.failure_class == FailureClass.UPLOAD
        raise StorageError(report.message)

    for upload in (by_supervisor, lambda: alone.run(look_for_strays=False), with_others):
        with pytest.raises(StorageError, match="last"):
            upload()
        assert unpacked((out / "model.tar.gz").read_bytes()) == {"weights": b"weights"}
        (out / "model.tar.gz").unlink()
    # a failed job has no model, and resumes from checkpoints
    warnings, report = save_outputs(folder, settings, ["algo-1"], Phases(log), failed=True, flush=sync.flush)
    assert report is None, "the job keeps its own failure"
    assert len(warnings) == 1
    assert "last" in warnings[0]
    assert not list(out.iterdir())


def test_outputs_of_a_stopped_job_that_cannot_be_uploaded_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    folder, log = JobFolder(tmp_path / "job"), EventLog(tmp_path / "events", "algo-1")
    paths = folder.host("algo-1")
    paths.make()
    (paths.model / "weights").write_text("weights")
    settings = Settings(output_uri=(tmp_path / "out").as_uri())
    warnings, report = save_outputs(
        folder, settings, ["algo-1"], Phases(log), failed=False, is_complete=False
    )
    assert report is None
    assert warnings[0].startswith("the outputs of the stopped job could not be uploaded: ")


def test_a_checkpoint_that_is_swapped_for_a_link_shows_nothing(tmp_path: Path, secret: Path) -> None:
    """A thread plays the container: the name is a link to the host's file, a FIFO, or a file, all the time."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    stop, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            for make in (
                lambda path: path.symlink_to(secret),
                os.mkfifo,
                lambda path: path.write_text(str(time.monotonic_ns())),
            ):
                make(here / "next")
                os.replace(here / "next", here / "checkpoint.pt")
                swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[str] = set()
    began = time.monotonic()
    sync = synced(here, there)
    # until some of the real files were uploaded
    while time.monotonic() < began + 0.5 or (len(seen) <= 5 and time.monotonic() < began + 60):
        sync.flush()
        if (there / "checkpoint.pt").exists():
            seen.add((there / "checkpoint.pt").read_text())
    stop.set()
    thread.join()
    assert swaps > 100
    assert len(seen) > 5
    assert not any(SECRET in text for text in seen)


@pytest.mark.parametrize(
    "leave",
    [
        lambda path, secret: path.symlink_to(secret),
        lambda path, secret: os.mkfifo(path),
        lambda path, secret: path.mkdir(),
    ],
    ids=["link", "pipe", "folder"],
)
def test_anything_else_in_place_of_the_failure_file_is_ignored(
    tmp_path: Path, secret: Path, leave: Callable[[Path, Path], None]
) -> None:
    paths = Paths(tmp_path / "algo-1")
    paths.output.mkdir(parents=True)
    leave(paths.failure, secret)
    with pytest.raises(OSError):
        read_left(paths, paths.failure)


def test_a_failure_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "algo-1")
    paths.output.mkdir(parents=True)
    with open(paths.failure, "wb") as file:
        file.truncate(1 << 40)
    assert len(read_left(paths, paths.failure)) == LARGEST_REPORT


def job_folder(path: Path, **fields: Any) -> JobFolder:
    """The folder of a job in a container."""
    platform = ContainerPlatform()
    given = {"image_uri": "image:1", "job_name": path.name, "platform": "container", **fields}
    path.mkdir(parents=True)
    request = platform.render(platform.resolve(TrainingJob.from_dict(given)))
    (path / "request.json").write_text(request.to_json())
    return JobFolder(path)


def test_outputs_that_are_sent_later_do_not_depend_on_files_of_the_container(
    tmp_path: Path, secret: Path
) -> None:
    folder = job_folder(tmp_path / "j", output_path=(tmp_path / "out").as_uri())
    folder.write_record(JobRecord(JobStatus.FAILED, 0.0, failure=FailureReport(FailureClass.UPLOAD, "later")))
    paths = folder.host("algo-1")
    paths.make()
    (paths.model / "weights").write_text("weights")
    (paths.model / "link").symlink_to(secret)
    for name in ("resourceconfig.json", "hyperparameters.json", "inputdataconfig.json"):
        os.mkfifo(paths.input_config / name)
    upload_pending(folder, lambda count: None)
    assert folder.read_record().status == JobStatus.COMPLETED
    model = (tmp_path / "out" / "j" / "output" / "model.tar.gz").read_bytes()
    assert unpacked(model) == {"weights": b"weights"}
    assert "model/link (a link out of its folder)" in folder.events.read_text()


@pytest.mark.parametrize("is_supervisor", [True, False])
def test_outputs_wait_for_a_supervisor_that_is_slow_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_supervisor: bool
) -> None:
    """After the final record it removes the copies in memory, which may be large. Any other process uploads them."""
    monkeypatch.setattr(pending_upload, "LOCK_SECONDS", 0.1)
    folder = job_folder(tmp_path / "j", output_path=(tmp_path / "out").as_uri())
    folder.host("algo-1").make()
    lock = folder.lock()
    assert lock is not None
    with subprocess.Popen(["sleep", "1.5" if is_supervisor else "600"], pass_fds=[lock]) as holder:
        os.close(lock)
        who = {"pid": holder.pid, "process": identity(holder.pid)} if is_supervisor else {}
        failure = FailureReport(FailureClass.UPLOAD, "later")
        folder.write_record(JobRecord(JobStatus.FAILED, 0.0, failure=failure, **who))
        if is_supervisor:
            upload_pending(folder, lambda count: None)
        else:
            with pytest.raises(PlatformError, match="another process uploads the outputs of job j"):
                upload_pending(folder, lambda count: None)
            holder.kill()
    assert folder.read_record().status == (JobStatus.COMPLETED if is_supervisor else JobStatus.FAILED)


def test_the_next_attempt_writes_nothing_through_links(tmp_path: Path, secret: Path) -> None:
    folder = job_folder(tmp_path / "job")

    class OneHost(FolderHosts):
        interface = "eth0"

    hosts = OneHost(folder, ["algo-1"])
    hosts.prepare()
    paths = folder.host("algo-1")
    config = paths.input_config / "hyperparameters.json"
    assert config.read_text() == "{}"
    config.unlink()
    config.symlink_to(secret)
    for path in (paths.model, paths.checkpoints, paths.run):
        path.rmdir()
        path.symlink_to(secret.parent)
    paths.code.rmdir()
    os.mkfifo(paths.code)
    hosts.prepare()
    assert secret.read_text() == SECRET
    assert config.read_text() == "{}"
    assert not any(path.is_symlink() for path in paths.base.rglob("*"))
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


@pytest.mark.parametrize("compressed", [True, False])
def test_an_output_of_any_size_is_not_read_after_the_end_of_a_stopped_job(
    tmp_path: Path, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a hole: it takes no space, and would be read for hours."""
    base, began = tmp_path / "job", time.monotonic()
    Paths(base).make()
    with open(Paths(base).model / "hole", "wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(patience.default, "cut", lambda: began + 0.5)
    with pytest.raises(StorageError, match="took longer"):
        upload(base, tmp_path, compress_output=compressed)
    assert time.monotonic() - began < 60
    assert not list(tmp_path.glob("*/.upload-*")) + list(tmp_path.glob(".upload-*"))
