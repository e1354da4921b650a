"""A real full disk: a file system of 1 MB in its own mount namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging_trees import make_tree

from cloudtrain.packaging import pack

NAMESPACE = ("unshare", "--map-root-user", "--mount")
PACK = """
import os, sys
from pathlib import Path
from cloudtrain.errors import StorageError
from cloudtrain.packaging import pack
try:
    pack(Path(sys.argv[2]), cache_dir=Path(sys.argv[1]))
except StorageError as error:
    print(error, os.listdir(sys.argv[1]))
"""
UNPACK = """
import os, sys
from pathlib import Path
from cloudtrain.errors import StorageError
from cloudtrain.runtime.inputs.unpack import unpack
try:
    unpack(Path(sys.argv[2]), Path(sys.argv[1], "code"))
except StorageError as error:
    print(error, os.listdir(sys.argv[1]))
"""

INIT = """
import os, sys
from pathlib import Path
import click
from cloudtrain.cli._new_files import write_new_files
job = Path(sys.argv[1], "new", "job")
try:
    write_new_files({job / "train.yaml": b"1", job / "data" / "train.csv": bytes(3_000_000)})
except click.ClickException as error:
    print(error.message, os.listdir(sys.argv[1]))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """The mount point of the file system of 1 MB."""
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
            pytest.fail("this system makes no user namespaces")
        pytest.skip("this system makes no user namespaces")
    disk = tmp_path / "disk"
    disk.mkdir()
    return disk


def run_on(disk: Path, script: str, argument: Path) -> str:
    """The output of ``script`` with the arguments ``disk`` and ``argument``."""
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$0" -c "$3" "$1" "$2"'
    command = [*NAMESPACE, "sh", "-c", mount, sys.executable, str(disk), str(argument), script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_full_disk_is_one_error_and_leaves_no_files(tmp_path: Path, small_disk: Path) -> None:
    source = make_tree(tmp_path / "src", {"noise.bin": os.urandom(3_000_000)})
    said = run_on(small_disk, PACK, source)
    assert said.endswith(
        "No space left on device\n  Free space there, or use another folder: set CLOUDTRAIN_HOME. []\n"
    )
    archive = pack(source, cache_dir=tmp_path / "cache").path
    said = run_on(small_disk, UNPACK, archive)
    assert said.endswith(
        "No space left on device\n  Free some space there, or request a larger volume_size. []\n"
    )
    said = run_on(small_disk, INIT, source)
    assert said.endswith(
        "No space left on device\n  Free space there, or name a folder on another disk. []\n"
    )
