"""``cloudtrain s3 cp``, ``ls``, ``rm`` and ``sync``, on a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain._system.paths import unusable_on_windows
from cloudtrain.cli import cli
from cloudtrain.errors import CloudtrainError
from cloudtrain.storage import open_store

MEBIBYTE = 1 << 20


def s3_command(*arguments: str | Path) -> str:
    """The output of ``cloudtrain s3``. Raises its error."""
    done = CliRunner().invoke(cli, ["s3", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def record(*arguments: str | Path) -> Any:
    return json.loads(s3_command(*arguments, "--json"))


def refusal(*arguments: str | Path) -> str:
    with pytest.raises(CloudtrainError) as raised:
        s3_command(*arguments)
    return str(raised.value)


def keys(uri: str) -> list[str]:
    return [entry.key for entry in open_store(uri).list()]


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def bucket(s3: str) -> str:
    return f"s3://{s3}"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder ``data`` in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data")
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("1,2")
    (folder / "sub" / "b ü.csv").write_text("3")
    (folder / "c.tmp").write_text("scratch")
    for path in folder.rglob(
        "*.*"
    ):  # servers round times to seconds: a file of this second may be newer than its object
        os.utime(path, (time.time() - 60, time.time() - 60))
    return folder


def test_cp_copies_files_under_the_names_that_aws_gives_them(bucket: str, data: Path) -> None:
    assert s3_command("cp", "data/a.csv", f"{bucket}/in/") == f"upload: data/a.csv to {bucket}/in/a.csv\n"
    s3_command("cp", "data/a.csv", f"{bucket}/in/renamed")
    s3_command("cp", "data/a.csv", bucket)
    assert keys(bucket) == ["a.csv", "in/a.csv", "in/renamed"]
    assert s3_command("cp", f"{bucket}/in/renamed", ".") == f"download: {bucket}/in/renamed to ./renamed\n"
    s3_command("cp", f"{bucket}/in/a.csv", "new/copy.csv")
    assert Path("new/copy.csv").read_text() == Path("renamed").read_text() == "1,2"
    s3_command("cp", f"{bucket}/in/a.csv", f"{bucket}/in/copied")
    assert open_store(bucket).read("in/copied") == b"1,2"


def test_cp_copies_folders_there_and_back(bucket: str, data: Path) -> None:
    done = record("cp", "--recursive", "data", f"{bucket}/in", "--exclude", "*", "--include", "*.csv")
    assert done["bytes"] == 4
    assert done["copied"][0] == {"source": "data/a.csv", "target": f"{bucket}/in/a.csv", "size": 3}
    assert keys(f"{bucket}/in") == ["a.csv", "sub/b ü.csv"]
    s3_command("cp", "--recursive", f"{bucket}/in", f"{bucket}/copy")
    assert s3_command("cp", "--recursive", "--quiet", f"{bucket}/copy", "down") == ""
    assert names(Path("down")) == ["a.csv", "sub/b ü.csv"]


def test_large_objects_are_copied_inside_s3(bucket: str, data: Path) -> None:
    (data / "large").write_bytes(os.urandom(9 * MEBIBYTE))
    s3_command("cp", "data/large", f"{bucket}/one/")
    s3_command("sync", f"{bucket}/one", f"{bucket}/two")
    assert open_store(f"{bucket}/two").read("large") == (data / "large").read_bytes()


def test_dryrun_changes_nothing(bucket: str, data: Path) -> None:
    assert s3_command("cp", "--dryrun", "data/a.csv", f"{bucket}/x") == (
        f"(dryrun) upload: data/a.csv to {bucket}/x\n"
    )
    s3_command("cp", "data/a.csv", f"{bucket}/x")
    assert s3_command("rm", "--dryrun", f"{bucket}/x") == f"(dryrun) delete: {bucket}/x\n"
    assert keys(bucket) == ["x"]


def test_excluded_files_are_neither_copied_nor_removed(bucket: str, data: Path) -> None:
    assert s3_command("cp", "data/a.csv", f"{bucket}/x", "--exclude", "*") == ""
    s3_command("cp", "data/a.csv", f"{bucket}/in/a.csv")
    for arguments in (["in/a.csv"], ["in/a.csv", "--recursive"], ["in", "--recursive"], ["", "--recursive"]):
        assert s3_command("rm", f"{bucket}/{arguments[0]}", *arguments[1:], "--exclude", "*.csv") == ""
    assert keys(bucket) == ["in/a.csv"]


def test_a_download_replaces_no_pipe_device_link_or_folder(bucket: str, data: Path) -> None:
    s3_command("cp", "data/a.csv", f"{bucket}/in/a.csv")
    os.mkfifo("pipe")
    Path("device").symlink_to("pipe")
    for name in ("pipe", "device"):
        assert "is a pipe or a device" in refusal("cp", f"{bucket}/in/a.csv", name)
    Path("down/a.csv").mkdir(parents=True)
    for command in (["cp", "--recursive"], ["sync"]):
        assert "down/a.csv is a folder" in refusal(*command, f"{bucket}/in", "down")
    Path("link").symlink_to("data/c.tmp")
    s3_command("cp", f"{bucket}/in/a.csv", "link")
    assert Path("pipe").is_fifo()
    assert Path("link").is_symlink()
    assert Path("data/c.tmp").read_text() == "1,2"


def test_names_that_windows_would_take_for_others_are_refused_before_any_copy(
    bucket: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.storage.uri.unusable_name", unusable_on_windows)
    for key in ("in/a", "in/what?"):
        open_store(bucket).write(key, b"x")
    for command in (["cp", "--recursive"], ["sync"]):
        assert "Windows does not allow '?'" in refusal(*command, f"{bucket}/in", "down")
    assert "Windows does not allow '?'" in refusal("cp", f"{bucket}/in/what?", "down/")
    assert not Path("down").exists()


def test_sync_copies_what_is_new_or_has_changed(bucket: str, data: Path) -> None:
    assert len(record("sync", "data", f"{bucket}/in")["copied"]) == 3
    assert s3_command("sync", "data", f"{bucket}/in") == ""
    (data / "a.csv").write_text("9,9")
    os.utime(data / "a.csv", (time.time() + 5, time.time() + 5))
    assert s3_command("sync", "--size-only", "data", f"{bucket}/in") == ""
    assert s3_command("sync", "data", f"{bucket}/in") == f"upload: data/a.csv to {bucket}/in/a.csv\n"


def test_sync_downloads_what_is_new_or_has_changed(bucket: str, data: Path) -> None:
    s3_command("sync", "data", f"{bucket}/in")
    assert len(record("sync", f"{bucket}/in", "down")["copied"]) == 3
    assert s3_command("sync", f"{bucket}/in", "down") == ""
    os.utime("down/a.csv", (1.0, 1.0))
    Path("down/sub/b ü.csv").unlink()
    changed = record("sync", f"{bucket}/in", "down")["copied"]
    assert [copy["target"] for copy in changed] == ["down/a.csv", "down/sub/b ü.csv"]


def test_sync_delete_removes_what_the_source_does_not_have(bucket: str, data: Path) -> None:
    s3_command("sync", "data", f"{bucket}/in")
    (data / "c.tmp").unlink()
    assert s3_command("sync", "data", f"{bucket}/in") == ""
    assert s3_command("sync", "--delete", "--exclude", "*.tmp", "data", f"{bucket}/in") == ""
    assert s3_command("sync", "--delete", "data", f"{bucket}/in") == f"delete: {bucket}/in/c.tmp\n"
    Path("down").mkdir()
    Path("down/old").write_text("old")
    Path("elsewhere").mkdir()
    Path("elsewhere/kept").write_text("kept")
    Path("down/link").symlink_to(Path("elsewhere").absolute())
    assert record("sync", "--delete", f"{bucket}/in", "down")["deleted"] == ["down/old"]
    assert Path("elsewhere/kept").exists()


def test_deletions_that_are_probably_mistakes_are_refused(bucket: str, data: Path) -> None:
    s3_command("sync", "data", f"{bucket}/in")
    Path("empty").mkdir()
    assert "there is nothing at empty: --delete would remove 3 files" in refusal(
        "sync", "--delete", "empty", f"{bucket}/in"
    )
    assert "there is nothing at" in refusal("sync", "--delete", f"{bucket}/typo", "data")
    assert "is a whole bucket: --delete would remove 3 files" in refusal("sync", "--delete", "data", bucket)
    Path("project/.git").mkdir(parents=True)
    Path("project/train.py").write_text("")
    assert "project is a git repository" in refusal("sync", "--delete", f"{bucket}/in", "project")
    assert "is a folder with 3 objects\n  Add --recursive" in refusal("rm", f"{bucket}/in")
    assert "is a whole bucket: all 3 objects would be removed" in refusal("rm", "--recursive", bucket)
    assert (names(data), len(keys(bucket)), names(Path("project"))) == (
        ["a.csv", "c.tmp", "sub/b ü.csv"],
        3,
        ["train.py"],
    )
    assert len(record("sync", "--delete", "--force", "empty", f"{bucket}/in")["deleted"]) == 3


def test_rm_removes_an_object_or_a_folder_but_not_its_namesakes(bucket: str, data: Path) -> None:
    for key in ("data/a", "data/b/c", "data-2/a", "single"):
        open_store(bucket).write(key, b"x")
    assert s3_command("rm", f"{bucket}/single") == f"delete: {bucket}/single\n"
    assert record("rm", "--recursive", f"{bucket}/data")["deleted"] == [
        f"{bucket}/data/a",
        f"{bucket}/data/b/c",
    ]
    assert keys(bucket) == ["data-2/a"]
    assert f"there is nothing at {bucket}/single" in refusal("rm", f"{bucket}/single")
    assert "data is on this machine" in refusal("rm", "--recursive", "data")


def test_ls_lists_buckets_folders_and_objects(bucket: str, data: Path) -> None:
    s3_command("sync", "data", f"{bucket}/in")
    assert bucket.removeprefix("s3://") in s3_command("ls")
    lines = s3_command("ls", f"{bucket}/in", "--summarize").splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["a.csv", "c.tmp", "sub/"]
    assert (lines[2].split()[0], lines[0].split()[2]) == ("PRE", "3")
    assert lines[-2:] == ["Total Objects: 2", "   Total Size: 10"]
    listed = record("ls", "--recursive", bucket)
    assert [entry["uri"] for entry in listed] == [f"{bucket}/{key}" for key in keys(bucket)]
    assert [entry["key"] for entry in record("ls", f"{bucket}/in/a.csv")] == ["a.csv"]
    assert "there is nothing at" in refusal("ls", f"{bucket}/typo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cp", "data/a.csv", "copy.csv"], "both locations are on this machine\n  Use cp."),
        (["cp", "data", "{}/in"], "data is a folder\n  Add --recursive"),
        (["cp", "{}/in/a", "-"], "standard input and output cannot be copied"),
        (["cp", "nowhere", "{}/in"], "the folder nowhere does not exist"),
        (["cp", "--recursive", "{}/typo", "down"], "there is nothing below {}/typo/"),
        (["cp", "data/a.csv", "s3:/bucket"], "'s3:/bucket' is not a URI"),
        (["cp", "data/a.csv", "gs://bucket"], "'gs://bucket' is not in S3"),
        (["cp", "data/a.csv", "s3://no-such-bucket-here/x"], "there is no bucket 'no-such-bucket-here'"),
        (["sync", "data/a.csv", "{}/in"], "the folder data/a.csv does not exist"),
        (["sync", "{}/in", "{}/in/copy"], "overlap"),
        (["ls", "data"], "data is on this machine"),
    ],
)
def test_wrong_arguments_get_one_clear_error(
    bucket: str, data: Path, arguments: list[str], message: str
) -> None:
    open_store(bucket).write("in/a", b"x")
    assert message.format(bucket) in refusal(*(argument.format(bucket) for argument in arguments))


def test_control_characters_in_names_do_not_reach_the_terminal(bucket: str, data: Path) -> None:
    open_store(bucket).write("in/\x7f\u202ered", b"x")
    printed = s3_command("ls", f"{bucket}/in") + s3_command("rm", "--recursive", f"{bucket}/in")
    assert printed.count(r"\x7f\u202ered") == 2


def test_ctrl_c_leaves_no_incomplete_file(bucket: str, data: Path) -> None:
    store, content = open_store(f"{bucket}/many"), os.urandom(MEBIBYTE)
    for number in range(120):
        store.write(f"{number:03}", content)
    command = [sys.executable, "-m", "cloudtrain", "s3", "cp", "--recursive", f"{bucket}/many", "down"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert "download" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        error = process.stderr.read()
        process.stdout.read()
        assert process.wait(timeout=120) == 130
    assert "No file is incomplete: run it again to continue." in error
    found = list(Path("down").iterdir())
    assert 0 < len(found) < 120
    assert all(path.read_bytes() == content for path in found)
