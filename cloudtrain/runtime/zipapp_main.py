"""The ``__main__`` of the bundled runtime, a zipapp (`cloudtrain.packaging.pack_runtime`).

    python cloudtrain.pyz [MODULE [ARGUMENT]...]

unpacks the zipapp and runs MODULE from there as ``python -m`` does, by default ``cloudtrain.runtime``. Ranks, mpirun's
helpers and the ``horovod`` alias are started and found by path, so they have to be files. The process remains process 1
of its container, which receives the signals.

cloudtrain cannot be imported here yet. Older versions of Python must be able to parse this file, to report what it
needs.
"""

import hashlib
import os
import runpy
import shutil
import signal
import sys
import tempfile
import zipfile
import zlib

if sys.platform == "win32":

    def _user() -> int:
        return -1

else:
    _user = os.getuid

OLDEST = (3, 9)


def main() -> None:
    if sys.version_info < OLDEST:
        needed, found = (".".join(map(str, version[:3])) for version in (OLDEST, sys.version_info))
        sys.exit(
            f"cloudtrain's runtime needs Python {needed} or newer, and {sys.executable} is Python {found}: "
            "name another one in platform_options.python, or load one in platform_options.modules"
        )
    # Without a handler, the kernel discards signals to process 1. Blocked signals stay pending, even across execv.
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    folder = unpack(os.path.dirname(os.path.abspath(__file__)))
    rest = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, rest] if rest else [folder])
    os.chdir(folder)  # -m searches the working folder first, and this one only contains cloudtrain
    if len(sys.argv) == 1:
        os.execv(sys.executable, [sys.executable, "-m", "cloudtrain.runtime"])
    # this saves the start of another interpreter; the first entry of the path is the zipapp itself
    sys.path[0] = folder
    # even if the user has disabled it, because each process would otherwise recompile the modules in this folder
    sys.dont_write_bytecode = False
    module, *sys.argv[1:] = sys.argv[1:]
    from cloudtrain._lazy import start_program

    start_program()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def unpack(archive: str, parent: str = "") -> str:
    """Unpack the zipapp below ``parent``, or the temporary folder; returns the folder.

    The folder is named after the archive's hash and appears complete. Later callers, such as another host on the same
    machine or a restarted container, reuse it if it is complete and belongs to them.
    """
    with open(archive, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    parent = parent or tempfile.gettempdir()
    folder = folder_name(parent, _user(), digest)
    with zipfile.ZipFile(archive) as files:
        if _is_complete(folder, files):
            return folder
        fresh = tempfile.mkdtemp(prefix=f"{os.path.basename(folder)}-", dir=parent)
        files.extractall(fresh)
        try:
            os.rename(fresh, folder)
        except OSError:  # another process was faster, or the existing folder cannot be used
            if not _is_complete(folder, files):
                return fresh
            shutil.rmtree(fresh)
    return folder


def folder_name(temporary: str, user: int, digest: str) -> str:
    """The folder for the zipapp with this SHA-256 and the user with this id."""
    return os.path.join(temporary, f"cloudtrain-{user}-{digest[:16]}")


def _is_complete(folder: str, files: zipfile.ZipFile) -> bool:
    """Whether this user owns ``folder`` and it contains every file, because a cleanup or a full disk may damage it.

    Compares with the checksums in the archive, because reading its files as well takes longer than everything else.
    """
    try:
        return os.lstat(folder).st_uid == _user() and all(
            _sum(os.path.join(folder, item.filename)) == (item.file_size, item.CRC)
            for item in files.infolist()
        )
    except OSError:
        return False


def _sum(path: str) -> "tuple[int, int]":
    """The size and the CRC-32 of a file."""
    with open(path, "rb", buffering=0) as file:
        content = file.read()
    return len(content), zlib.crc32(content)


if __name__ == "__main__":
    main()
