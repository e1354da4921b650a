"""The runtime as a container gets it: packed, as everywhere, and unpacked where it would unpack itself."""

from __future__ import annotations

import compileall
import os
import shutil
import stat
import zipfile
from pathlib import Path

from cloudtrain.engine.client import Bind
from cloudtrain.packaging import RuntimeArchive, pack_runtime
from cloudtrain.platforms.common.container_entrypoint import RUNTIME_PATH
from cloudtrain.runtime.zipapp_main import folder_name
from cloudtrain.storage import state_home

TEMPORARY = "/tmp"
"""Of a container; one that has another unpacks its runtime itself."""


def runtime_binds() -> list[Bind]:
    """The mounts that bring the runtime. Raises StorageError, OSError."""
    archive = pack_runtime(state_home() / "runtime")
    folder = _unpacked(archive)
    open_up(archive.path, 0o444)
    # a container's user takes what belongs to it: it is root, or we ourselves, or it unpacks its own
    places = (folder_name(TEMPORARY, user, archive.sha256) for user in sorted({0, os.getuid()}))
    return [
        Bind(str(archive.path), RUNTIME_PATH, read_only=True),
        *(Bind(str(folder), place, read_only=True) for place in places),
    ]


def _unpacked(archive: RuntimeArchive) -> Path:
    """The content of the zipapp, and, for an image with this very Python, compiled; it appears whole."""
    folder = archive.path.with_name("unpacked")
    if folder.is_dir():
        return folder
    fresh = folder.with_name(f".unpacked-{os.getpid()}")
    try:
        with zipfile.ZipFile(archive.path) as files:
            files.extractall(fresh)
        compileall.compile_dir(fresh, quiet=2, ddir=TEMPORARY)
        open_up(fresh, 0o444)
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():  # nobody was faster
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def open_up(path: Path, mode: int) -> None:
    """Let the image's user, who may be anybody if we are root, read or write a file, or all below a folder.

    Nobody else comes that far: the state folder is ours alone.
    """
    if os.getuid() != 0:
        return
    for folder, _, names in os.walk(path):
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | mode | 0o111)
        for name in names:
            _allow(f"{folder}/{name}", mode)
    if path.is_file():
        _allow(str(path), mode)


def _allow(file: str, mode: int) -> None:
    status = os.lstat(file)
    if stat.S_ISREG(status.st_mode):
        os.chmod(file, stat.S_IMODE(status.st_mode) | mode)
