"""A folder of checkpoints stays as small as what it keeps, and a save does not look through old steps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from checkpoint_trees import saver

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.storage.file import FileStore

OLD = 3600.0

WRITER = """
    import sys
    from pathlib import Path
    from cloudtrain.storage.file import FileStore

    def blocks():
        yield b"half"
        print("half", flush=True)
        sys.stdin.read()

    class Endless(list):
        __iter__ = lambda self: blocks()

    FileStore(Path(sys.argv[1])).write(sys.argv[2], Endless())
"""


def age(path: Path) -> None:
    os.utime(path, (time.time() - OLD,) * 2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_expired_checkpoints_leave_no_folders(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, keep=2)
    for step in range(1, 6):
        checkpointer.save(step, {"step": step})
    assert names(tmp_path) == ["step-000000000004", "step-000000000005"]


def test_empty_folders_of_an_earlier_version_are_removed(tmp_path: Path) -> None:
    for step in (1, 2, 9):
        (tmp_path / f"step-{step:012d}" / "save").mkdir(parents=True)
    saver(tmp_path).save(3, {})
    assert names(tmp_path) == ["step-000000000003", "step-000000000009"]


@pytest.mark.parametrize("keep", [2, None])
def test_a_save_opens_no_folders_of_old_steps(
    keep: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = saver(tmp_path, keep=keep)
    scandir, opened = os.scandir, []

    def counted(path: str) -> object:
        opened.append(path)
        return scandir(path)

    counts = []
    for step in range(1, 30):
        opened.clear()
        monkeypatch.setattr(os, "scandir", counted)
        checkpointer.save(step, {"step": step})
        monkeypatch.undo()
        counts.append(len(opened))
    assert counts[-1] <= counts[5] <= 10


def test_the_temporary_file_of_a_killed_writer_is_removed_and_that_of_a_living_one_kept(
    tmp_path: Path,
) -> None:
    def writer(key: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            "\n".join(line[4:] for line in WRITER.splitlines()),
            str(tmp_path),
            key,
        ]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert started.stdout
        assert started.stdout.readline() == "half\n"
        return started

    killed, alive = writer("step-000000000001/dead/tree.json"), writer("step-000000000002/busy/tree.json")
    killed.kill()
    killed.wait()
    for path in tmp_path.rglob(".cloudtrain-tmp-*"):
        age(path)
    checkpointer = saver(tmp_path)
    checkpointer.save(3, {})
    assert names(tmp_path) == ["step-000000000002", "step-000000000003"]
    alive.communicate("")
    assert alive.returncode == 0
    assert FileStore(tmp_path).read("step-000000000002/busy/tree.json") == b"half"
    checkpointer.save(4, {})
    assert FileStore(tmp_path).stat("step-000000000002/busy/tree.json") is None


def test_a_temporary_file_that_was_just_written_is_removed_by_a_later_save(tmp_path: Path) -> None:
    fresh = tmp_path / "step-000000000001" / "save" / ".cloudtrain-tmp-ab"
    fresh.parent.mkdir(parents=True)
    fresh.write_bytes(b"half")
    checkpointer = saver(tmp_path)
    checkpointer.save(2, {})
    assert fresh.exists()  # its writer may not have locked it yet
    age(fresh)
    checkpointer.save(3, {})
    assert not fresh.parent.parent.exists()


def test_an_interrupted_save_is_removed_also_if_everything_is_kept(tmp_path: Path) -> None:
    FileStore(tmp_path).write("step-000000000002/dead/tree.json", b"half")
    checkpointer = saver(tmp_path, keep=None)
    for step in (1, 3):
        checkpointer.save(step, {})
    assert FileStore(tmp_path).stat("step-000000000002/dead/tree.json") is None
    assert Checkpointer(tmp_path).steps() == [1, 3]


def test_writers_and_deletions_of_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(200):
                store.write(f"a/b/{number}", b"data")
                store.delete([f"a/b/{number}"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert list(tmp_path.iterdir()) == []
