"""Packs the runtime into one file that any Python 3.9 or newer can run: ``python cloudtrain.pyz``."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import write_file

RUNTIME_FILE = "cloudtrain.pyz"

PACKAGE = Path(__file__).parents[1]

BUNDLED = (
    "__init__.py",
    "_dataclass.py",
    "_lazy.py",
    "_version.py",
    "errors.py",
    "_secrets",
    "_system",
    "alias",
    "checkpoint",
    "contract",
    "distributed",
    "environment",
    "link",
    "observe",
    "optimizers",
    "runtime",
    "storage",
)
"""The files and folders that are bundled with a job.

They run on Python 3.9, and import only the standard library and packages of the job.
"""

UNIX = 3
"""Unix, as the creating system in the header of a zip file."""

_MODIFIED = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip file can store."""


@dataclass(frozen=True)
class RuntimeArchive:
    """An archive that jobs share: ``<cache_dir>/<sha256>/<name>``."""

    path: Path
    sha256: str


def pack_runtime(cache_dir: Path) -> RuntimeArchive:
    """Pack the runtime of this installation. The same files give the same bytes on every machine.

    Raises:
        StorageError: the cache cannot be written.
    """
    return keep_archive(_zipapp(), cache_dir, RUNTIME_FILE, "the runtime")


def keep_archive(data: bytes, cache_dir: Path, name: str, what: str) -> RuntimeArchive:
    """Write an archive into the cache, unless it is there already.

    Args:
        what: the content, for the message of the error.

    Raises:
        StorageError: the cache cannot be written.
    """
    sha256 = _digest(data)
    path = cache_dir / sha256 / name
    try:
        if not path.is_file() or path.read_bytes() != data:
            write_file(path, data)
    except OSError as error:
        raise StorageError(
            f"cannot write {what} into {cache_dir}: {error.strerror}",
            hint="Free space there, or use another folder: set CLOUDTRAIN_HOME.",
        ) from error
    return RuntimeArchive(path, sha256)


def runtime_sha256() -> str:
    """The name that `pack_runtime` gives to the runtime of this installation. Writes nothing."""
    return _digest(_zipapp())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@functools.cache
def _zipapp() -> bytes:
    """The archive's bytes. They are not compressed, so that they do not depend on zlib's version and start faster.

    Reading all files takes 0.1 s, and each element of an array needs them.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        main = PACKAGE / "runtime" / "zipapp_main.py"
        archive.writestr(zip_info("__main__.py"), main.read_bytes())
        for name in _names():
            with open(os.path.join(PACKAGE.parent, name), "rb", buffering=0) as file:
                archive.writestr(zip_info(name), file.read())
    return buffer.getvalue()


def _names() -> Iterator[str]:
    """The paths of all files, with slashes, relative to the folder of the package."""
    for name in BUNDLED:
        path, full = PACKAGE / name, f"{PACKAGE.name}/{name}"
        yield from sorted(_below(str(path), full)) if path.is_dir() else [full]


def _below(folder: str, name: str) -> Iterator[str]:
    """The Python files in ``folder`` and below it, for which ``name`` is the folder's path in the archive."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _below(entry.path, f"{name}/{entry.name}")
            elif entry.name.endswith(".py"):
                yield f"{name}/{entry.name}"


def zip_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _MODIFIED)
    info.create_system = UNIX  # by default, it depends on this machine
    return info
