"""The bundled runtime: the same bytes everywhere, only the bundled packages, unpacked safely."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cloudtrain
from cloudtrain.errors import StorageError
from cloudtrain.packaging import pack_runtime
from cloudtrain.runtime.zipapp_main import unpack

PACK = "import sys; from pathlib import Path; from cloudtrain.packaging import pack_runtime as p; "
PACK += "print(p(Path(sys.argv[1])).sha256)"


def test_the_same_files_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    here = pack_runtime(tmp_path / "cache")
    copy = tmp_path / "elsewhere" / "cloudtrain"
    shutil.copytree(Path(cloudtrain.__file__).parent, copy, copy_function=shutil.copyfile)  # with other times
    (copy / "runtime" / "notes.txt").write_text("not code")
    there = subprocess.run(
        [sys.executable, "-c", PACK, str(tmp_path / "other cache")],
        env={**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here.sha256
    assert here.path == tmp_path / "cache" / here.sha256 / "cloudtrain.pyz"


def test_a_change_gives_another_name(tmp_path: Path) -> None:
    before = pack_runtime(tmp_path / "cache")
    copy = tmp_path / "elsewhere" / "cloudtrain"
    shutil.copytree(Path(cloudtrain.__file__).parent, copy)
    (copy / "_version.py").write_text('__version__ = "9.9.9"\n')
    after = subprocess.run(
        [sys.executable, "-c", PACK, str(tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert after.stdout.strip() != before.sha256


def test_only_bundled_packages_are_in_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(pack_runtime(tmp_path).path) as archive:
        names = archive.namelist()
    assert names[0] == "__main__.py"
    rooms = {name.split("/")[1] for name in names[1:]}
    assert {"runtime", "contract", "storage", "distributed", "checkpoint", "alias", "__init__.py"} <= rooms
    assert not {"spec", "cli", "packaging", "platforms", "testing", "estimator.py"} & rooms
    assert {"cloudtrain/runtime/slurm/step.py", "cloudtrain/runtime/start/node.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)


def test_a_damaged_cache_is_repaired(tmp_path: Path) -> None:
    archive = pack_runtime(tmp_path)
    whole = archive.path.read_bytes()
    for damaged in (whole[:1000], bytes(len(whole))):
        archive.path.write_bytes(damaged)
        assert pack_runtime(tmp_path) == archive
        assert archive.path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write the runtime into"):
        pack_runtime(tmp_path / "file")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A packed runtime, with its own temporary folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return str(pack_runtime(tmp_path / "cache").path)


def test_unpacked_once_for_all_later_processes(archive: str, tmp_path: Path) -> None:
    folder = unpack(archive)
    program = Path(folder) / "cloudtrain" / "runtime" / "rank.py"
    before = program.stat()
    assert unpack(archive) == folder
    after = program.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert os.listdir(tmp_path / "tmp") == [os.path.basename(folder)]
    assert os.stat(folder).st_mode & 0o077 == 0


def test_an_incomplete_folder_is_skipped(archive: str) -> None:
    folder = unpack(archive)
    (Path(folder) / "cloudtrain" / "errors.py").unlink()
    again = unpack(archive)
    assert again != folder
    assert (Path(again) / "cloudtrain" / "errors.py").exists()


@pytest.mark.parametrize("same_size", [True, False])
def test_a_folder_with_a_damaged_file_is_skipped(same_size: bool, archive: str) -> None:
    folder = unpack(archive)
    file = Path(folder) / "cloudtrain" / "errors.py"
    file.write_bytes(bytes(file.stat().st_size) if same_size else b"")
    assert unpack(archive) != folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_skipped(archive: str) -> None:
    folder = unpack(archive)
    os.chown(folder, 12345, 12345)
    assert unpack(archive) != folder


def test_concurrent_processes_share_one_folder(archive: str, tmp_path: Path) -> None:
    code = "import sys, tempfile; tempfile.tempdir = sys.argv[1]; from cloudtrain.runtime.zipapp_main import unpack;"
    code += "print(unpack(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(tmp_path / "tmp"), archive]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    folders = {process.communicate()[0].strip() for process in running}
    assert len(folders) == 1
    assert len(os.listdir(tmp_path / "tmp")) == 1


def test_unpacked_modules_are_compiled_once_also_if_the_user_turned_that_off(tmp_path: Path) -> None:
    archive = pack_runtime(tmp_path / "cache").path
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    # outside a job, the step ends with an error after its imports
    subprocess.run(
        [sys.executable, archive, "cloudtrain.runtime.slurm.step"],
        env=environment,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (
        len([*tmp_path.glob("cloudtrain-*/cloudtrain/runtime/supervisor/__pycache__/supervise.*.pyc")]) == 1
    )


def test_the_batch_step_does_not_import_the_runtime_that_the_nodes_run() -> None:
    code = (
        "import sys, cloudtrain.runtime.slurm.step; sys.exit('cloudtrain.runtime.entrypoint' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
