"""A private ``/opt/ml`` for each host: a mount namespace in which it is the host's folder.

Nothing is created or mounted on the machine itself: the kernel removes the namespace with its last process. Root needs
only a mount namespace; any other user also needs a user namespace, in which the user and group IDs stay the same.

    python -m cloudtrain.platforms.local.namespace FOLDER

tries it, and prints the reason if this machine does not permit it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cloudtrain._system.processes import HAS_MOUNT_NAMESPACES
from cloudtrain._system.users import group_id, user_id
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.request_body import request_settings
from cloudtrain.storage import uri_scheme, uri_to_path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
CAPABILITY_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3, capget(2)."""
O_PATH, O_NOFOLLOW = getattr(os, "O_PATH", 0), getattr(os, "O_NOFOLLOW", 0)
GPU_MEMORY_DEVICE = "/dev/nvidia-uvm"


def no_opt_ml(request: Mapping[str, Any], folder: Path) -> str:
    """The reason why a job's hosts cannot have their own ``/opt/ml``; empty if none is known.

    Args:
        request: the body of the request.
        folder: the job's folder.
    """
    if not request.get("mount_opt_ml", True):
        return "platform_options.mount_opt_ml is false"
    settings = request_settings(request)
    uris = (*(uri for _, uri in settings.channels), settings.output_uri, settings.checkpoint_uri)
    files = (uri_to_path(uri) for uri in uris if uri_scheme(uri) == "file")
    return obstacle([folder, request["python"], sys.executable, *filter(None, sys.path), *files])


def obstacle(needed: Iterable[str | os.PathLike[str]]) -> str:
    """The reason why a job cannot have its own ``/opt/ml``; empty if none is known without trying.

    Args:
        needed: files and folders that the job needs. It would not see those below the machine's ``/opt/ml``.
    """
    if not HAS_MOUNT_NAMESPACES:
        return "this operating system has no mount namespaces"
    for path in needed:
        for form in (os.path.abspath(path), os.path.realpath(path)):
            if f"{form}/".startswith(f"{DEFAULT_BASE}/"):
                return f"the job needs {os.fspath(path)}, which is in the machine's {DEFAULT_BASE}"
    return ""


def enter(folder: Path) -> None:
    """Move this process, which has one thread, to a namespace in which ``/opt/ml`` is ``folder``.

    Raises:
        OSError: the machine does not permit it. The process may then be in a useless namespace, and should exit.
    """
    try:
        _call("unshare", CLONE_NEWNS)
    except PermissionError:
        if user_id() == 0:
            raise  # in a user namespace, root could no longer access the files of other users
        _enter_user_namespace()
        _mount_over_opt_ml(folder)
        _drop_capabilities()
    else:
        _call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)  # do not propagate the mounts
        _mount_over_opt_ml(folder)


def _enter_user_namespace() -> None:
    _load_gpu_driver()
    user, group = user_id(), group_id()
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    for name, text in (
        ("setgroups", "deny"),  # without it, the group cannot be mapped
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _load_gpu_driver() -> None:
    """Load the module that CUDA loads at first use: its setuid program has no effect in a user namespace."""
    program = shutil.which("nvidia-modprobe")
    if program and not os.path.exists(GPU_MEMORY_DEVICE):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([program, "-u", "-c=0"], capture_output=True, timeout=10)


def _mount_over_opt_ml(folder: Path) -> None:
    parent, name = os.path.split(DEFAULT_BASE)
    if os.path.isdir(DEFAULT_BASE) and not os.path.islink(DEFAULT_BASE):
        _bind(folder, DEFAULT_BASE)
        return
    # The mount point is missing: mount an empty folder over /opt, and everything that was in /opt into that
    entries = {entry: _open_path(f"{parent}/{entry}") for entry in os.listdir(parent) if entry != name}
    links = {
        entry: os.readlink("", dir_fd=descriptor)
        for entry, descriptor in entries.items()
        if stat.S_ISLNK(os.fstat(descriptor).st_mode)
    }
    options = MS_NOSUID | MS_NODEV
    _call("mount", b"cloudtrain", os.fsencode(parent), b"tmpfs", options, b"mode=755,size=1m")
    for entry, descriptor in entries.items():
        path = f"{parent}/{entry}"
        if entry in links:
            os.symlink(links[entry], path)
            continue
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _bind(f"/proc/self/fd/{descriptor}", path)
    os.mkdir(DEFAULT_BASE)
    _bind(folder, DEFAULT_BASE)
    # read-only, because anything that a script creates in /opt would be lost with the job: it gets an error instead
    _call("mount", None, os.fsencode(parent), None, options | MS_REMOUNT | MS_BIND | MS_RDONLY, None)
    for descriptor in entries.values():
        os.close(descriptor)


def _open_path(path: str) -> int:
    return os.open(path, O_PATH | O_NOFOLLOW)


def _bind(source: str | Path, target: str) -> None:
    _call("mount", os.fsencode(source), os.fsencode(target), None, MS_BIND | MS_REC, None)


def _drop_capabilities() -> None:
    """Become an ordinary user again: the first process of a user namespace has all capabilities in it."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError, with the name, if it fails."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    if function(*given):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def try_here(folder: Path) -> str:
    """Why jobs cannot have their own ``/opt/ml`` on this machine; empty if they can. Tries it in another process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd="/", env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.strip() or "".join(done.stderr.strip().splitlines()[-1:])


def reason(error: OSError) -> str:
    """The reason for an error of `enter`."""
    detail = error.strerror or str(error)
    if error.errno == errno.ENOSPC:  # not because a disk is full
        detail = "a limit in /proc/sys/user/max_*_namespaces is reached"
    return f"the kernel does not permit this user a namespace with it ({detail})"


if __name__ == "__main__":
    try:
        enter(Path(sys.argv[1]))
    except OSError as error:
        sys.stdout.write(reason(error))
