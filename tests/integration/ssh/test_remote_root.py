"""Job folders behind a shell: the same as on this machine, one command each, also if the connection breaks."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from login_node import ALIAS, NewNode

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.remote_path import check_path
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import Answer, ConnectionLost, LocalShell, Shell
from cloudtrain.platforms.batch.ssh import SshShell
from cloudtrain.runtime.supervisor.record import read_record

HOSTILE = 'it\'s a "name" $HOME `id` %s \\n *'
BINARY = bytes(range(256)) * 400


class Counting:
    """Counts the commands of a shell, and loses some of its answers."""

    place = ""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.trips = 0
        self.lose: set[int] = set()

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
        self.trips += 1
        answer = self._shell.run(command, stdin=stdin, timeout=timeout)
        if self.trips in self.lose:
            raise ConnectionLost("the connection broke")
        return answer

    def stream(self, command: str) -> AbstractContextManager[Iterator[bytes]]:
        return self._shell.stream(command)


@pytest.fixture(params=["local", "ssh"])
def shell(request: pytest.FixtureRequest, new_node: NewNode) -> Counting:
    if request.param == "local":
        return Counting(LocalShell())
    new_node(program="/bin/tcsh", noise="echo hello")
    return Counting(SshShell(ALIAS))


def new_job(root: RemoteRoot, name: str) -> str:
    draft = root.create(name)
    root.write(f"{draft}/state.json", b"{}")
    root.publish(draft, name)
    return name


def test_a_remote_folder_is_a_job_root(shell: Counting, tmp_path: Path) -> None:
    path = tmp_path / "the jobs"
    root = RemoteRoot(shell, str(path))
    assert list(root.names()) == []
    draft = root.create("first")
    root.write(f"{draft}/state.json", b"{}")
    root.write(f"{draft}/key", b"s3cret", mode=0o600)
    root.write(f"{draft}/{HOSTILE}", BINARY)
    assert root.read(f"{draft}/{HOSTILE}") == BINARY
    assert list(root.names()) == []
    before = shell.trips
    root.publish(draft, "first")
    assert shell.trips == before + 1
    assert sorted(file.name for file in (path / "first").iterdir() if file.name[0] != ".") == sorted(
        ["state.json", "key", HOSTILE]
    )
    assert (path / "first").stat().st_mode & 0o777 == 0o700
    assert (path / "first/key").stat().st_mode & 0o777 == 0o600
    assert list(root.names()) == ["first"]
    with pytest.raises(FileExistsError):
        root.create("first")

    before = shell.trips
    assert root.read(f"first/{HOSTILE}") == BINARY
    assert root.read_part(f"first/{HOSTILE}", 255) == BINARY[255:]
    assert root.read_part(f"first/{HOSTILE}", len(BINARY)) == b""
    root.write("first/stop", b"")
    root.write("first/state.json", BINARY)
    assert root.read("first/state.json") == BINARY
    assert shell.trips == before + 6
    root.remove("first")
    assert list(path.iterdir()) == []
    root.remove("first")


def test_what_is_not_a_file(shell: Counting, tmp_path: Path) -> None:
    root = RemoteRoot(shell, str(tmp_path))
    job = new_job(root, "job")
    (tmp_path / job / "folder").mkdir()
    (tmp_path / job / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / job / "pipe")
    for name, number in {
        "none": errno.ENOENT,
        "folder": errno.EINVAL,
        "link": errno.EINVAL,
        "pipe": errno.EINVAL,
        "state.json/x": errno.ENOTDIR,
        "folder/none/x": errno.ENOENT,
    }.items():
        for read in (root.read, lambda path: root.read_part(path, 0)):
            with pytest.raises(OSError) as caught:
                read(f"{job}/{name}")
            assert caught.value.errno == number, name
    with pytest.raises(FileNotFoundError):
        root.write("gone/stop", b"")
    with pytest.raises(OSError, match="Invalid argument"):
        root.write(f"{job}/folder", b"x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/state.json").symlink_to("nowhere")
    (tmp_path / ".cloudtrain-tmp-1").mkdir()
    (tmp_path / ".cloudtrain-tmp-1/state.json").touch()
    (tmp_path / "not-a-job").mkdir()
    assert list(root.names()) == ["broken", "job"]


def test_one_of_two_submissions_gets_the_name(tmp_path: Path) -> None:
    root, results = RemoteRoot(LocalShell(), str(tmp_path)), []

    def submit(number: int) -> None:
        draft = root.create("job")
        root.write(f"{draft}/state.json", str(number).encode())
        barrier.wait()
        try:
            root.publish(draft, "job")
            results.append(number)
        except FileExistsError:
            pass

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=submit, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = results
    assert root.read("job/state.json") == str(winner).encode()
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
    assert [path.name for path in (tmp_path / "job").iterdir() if path.is_dir()] == []


def test_lost_answers(tmp_path: Path) -> None:
    """Every command is carried out, its answer is lost, and it is repeated: the result is the same."""
    shell = Counting(LocalShell())
    root = RemoteRoot(shell, str(tmp_path))
    shell.lose = set(range(1, 100, 2))
    job = new_job(root, "job")
    root.write(f"{job}/file", BINARY)
    assert root.read(f"{job}/file") == BINARY
    assert root.names() == ["job"]
    root.remove(job)
    assert root.names() == []
    shell.lose = set(range(100))
    with pytest.raises(ConnectionLost):
        root.names()


def test_a_cut_upload_replaces_nothing(tmp_path: Path) -> None:
    class Cutting(Counting):
        def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
            return super().run(command, stdin=stdin[: len(stdin) // 2], timeout=timeout)

    whole = RemoteRoot(LocalShell(), str(tmp_path))
    job = new_job(whole, "job")
    root = RemoteRoot(Cutting(LocalShell()), str(tmp_path))
    with pytest.raises(PlatformError):
        root.write(f"{job}/state.json", BINARY)
    assert whole.read(f"{job}/state.json") == b"{}"
    with pytest.raises(PlatformError):
        new_job(root, "other")
    assert whole.names() == ["job"]
    assert not [file for file in (tmp_path / job).iterdir() if "tmp" in file.name]


def test_a_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k,nr_inodes=20", "none", small], check=True)
    try:
        root = RemoteRoot(LocalShell(), str(small))
        job = new_job(root, "job")
        with pytest.raises(OSError) as caught:
            root.write(f"{job}/large", bytes(1 << 20))
        assert caught.value.errno == errno.ENOSPC
        (small / job / ".cloudtrain-spare-0").write_bytes(bytes(65536))
        for number in range(30):
            try:
                (small / f"{number}").touch()
            except OSError:
                break
        root.write(f"{job}/stop", b"")
        assert root.read(f"{job}/stop") == b""
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_many_jobs_are_one_command(shell: Counting, tmp_path: Path) -> None:
    root = RemoteRoot(shell, str(tmp_path))
    for number in range(50):
        job = tmp_path / f"job-{number}"
        job.mkdir()
        (job / "state.json").write_bytes(BINARY[number:])
        (job / "stop").symlink_to("state.json")
    (tmp_path / "job-1/events.jsonl").write_text("{}")
    before = shell.trips
    found = root.snapshot(None)
    assert shell.trips == before + 1
    assert found["job-7/state.json"] == BINARY[7:]
    assert found["job-7/stop"] is None
    assert "job-7/summary.json" not in found
    assert len(found) == 100
    before = shell.trips
    with root.remembering("job-1"):
        assert root.read("job-1/state.json") == BINARY[1:]
        assert root.read_part("job-1/events.jsonl", 1) == b"}"
        for file, number in {"summary.json": errno.ENOENT, "stop": errno.EINVAL}.items():
            with pytest.raises(OSError) as caught:
                root.read(f"job-1/{file}")
            assert caught.value.errno == number
        assert shell.trips == before + 1
        assert root.read("job-2/state.json") == BINARY[2:]
        root.write("job-1/state.json", b"new")
        assert root.read("job-1/state.json") == b"new"
        assert shell.trips == before + 4
    with RemoteRoot(shell, f"{tmp_path}/none").remembering("none"), pytest.raises(FileNotFoundError):
        root.read("none/state.json")
    assert RemoteRoot(shell, f"{tmp_path}/none").snapshot(None) == {}


def test_a_folder_of_a_variable(new_node: NewNode, tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text("echo hello; SCRATCH='/tmp/sc ratch'")
    new_node(noise=f"export HOME={tmp_path}")
    shell = SshShell(ALIAS)
    assert RemoteRoot(shell, "~/jobs").path == f"{tmp_path}/jobs"
    root = RemoteRoot(shell, "$SCRATCH/cloud train/jobs")
    assert root.path == "/tmp/sc ratch/cloud train/jobs"
    assert root.uri == "file:///tmp/sc%20ratch/cloud%20train/jobs"
    assert root.place("job") == "kraken:/tmp/sc ratch/cloud train/jobs/job"
    with pytest.raises(PlatformError, match="NO_SUCH_VARIABLE is not set on kraken"):
        RemoteRoot(shell, "${NO_SUCH_VARIABLE}/x").names()
    for path in ("jobs", "$(pwd)/jobs", "$", "~other/jobs"):
        with pytest.raises(InvalidJob, match="is not an absolute path"):
            check_path(path, "platform_options.folder")


def test_a_file_of_terabytes_hides_no_other_job(shell: Counting, tmp_path: Path) -> None:
    root = RemoteRoot(shell, str(tmp_path))
    for name in ("small", "sparse", "large"):
        new_job(root, name)
    os.truncate(tmp_path / "sparse" / "state.json", 1 << 40)
    large = b"{" + b" " * (2 << 20) + b"}"
    (tmp_path / "large" / "state.json").write_bytes(large)
    before = shell.trips
    tracemalloc.start()
    with root.remembering(None):
        assert root.read("small/state.json") == b"{}"
        assert shell.trips == before + 1
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
        assert root.read("large/state.json") == large
        with pytest.raises(OSError, match="File too large"):
            root.read("sparse/state.json")
    tracemalloc.stop()
    with root.remembering("sparse"):
        assert read_record(lambda: root.read("sparse/state.json"), "sparse").is_damaged
