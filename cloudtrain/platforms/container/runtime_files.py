"""Unpacks the bundled runtime, and mounts it in containers."""

from __future__ import annotations

import compileall
import os
import shutil
import stat
import zipfile
from pathlib import Path

from cloudtrain._system.safe_open import Beneath
from cloudtrain._system.users import ROOT, user_id
from cloudtrain.engine.client import Bind
from cloudtrain.packaging import RuntimeArchive, pack_runtime
from cloudtrain.storage import state_home

FOLDER = "/opt/cloudtrain/runtime"
"""The folder of the runtime in a container."""

_START = (
    'for p in python3 python; do command -v "$p" >/dev/null && exec "$p" "$0" "$p"; done;'
    " echo cloudtrain: this image has no Python 3.9 or newer | tee /opt/ml/output/failure; exit 127"
)
ENTRYPOINT = ("/bin/sh", "-c", _START, f"{FOLDER}/cloudtrain/runtime/start/container_start.py")
"""Starts the runtime in one Python process. The zipapp needs three: to check the version, unpack and run."""


def runtime_binds() -> list[Bind]:
    """The mount of the runtime. Raises StorageError or OSError."""
    return [Bind(str(_unpacked(pack_runtime(state_home() / "runtime"))), FOLDER, read_only=True)]


def _unpacked(archive: RuntimeArchive) -> Path:
    """The folder of the unpacked zipapp, which is created atomically.

    It includes bytecode, which images with this version of Python can use.
    """
    folder = archive.path.with_name("unpacked")
    if folder.is_dir():
        return folder
    fresh = folder.with_name(f".unpacked-{os.getpid()}")
    try:
        with zipfile.ZipFile(archive.path) as files:
            files.extractall(fresh)
        compileall.compile_dir(fresh, quiet=2, ddir=FOLDER)
        open_up(fresh, 0o444)
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():  # no other process created it first
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def open_up(path: Path, mode: int) -> None:
    """Let any user read or write a file, or everything below a folder, if this process runs as root.

    An image may then run as any user. Other users of this machine cannot access it: it is in the state folder.
    """
    if user_id() != ROOT:
        return
    if path.is_file():
        path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)
        return
    with Beneath(path) as folder:
        folder.allow("", mode | 0o111)
        for found in folder.walk(lambda key, why: None):
            if found.target is None:
                folder.allow(found.key, mode | 0o111 if found.is_folder else mode)
