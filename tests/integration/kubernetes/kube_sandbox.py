"""A pod's sandbox and its containers, made of Linux namespaces: what the keeper of `kube_keeper` does in its children.

A sandbox has a network with the address of the pod, a host name, and IPC. A container in it has its own mounts and
processes: its command is process 1, as in every cluster. Its root is a copy on write of this machine's; /tmp is empty.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MNT_DETACH = 2
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    check(_libc.unshare(flags), "unshare")


def enter(path: str) -> None:
    """Join the namespace of a file in /proc/PID/ns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    check(_libc.setns(descriptor, 0), path)
    os.close(descriptor)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    encoded = [os.fsencode(text) or None for text in (source, target, kind)]
    check(_libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() or None), f"mount {source} {target}")


def ip(*commands: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, timeout=30)


def become_sandbox(hostname: str, addresses: Sequence[str]) -> list[socket.socket]:
    """Move this process into new namespaces; ``addresses`` are those on which it listens inside."""
    unshare(NEW_NET | NEW_UTS | NEW_IPC)
    socket.sethostname(hostname)
    ip("link set lo up")
    listeners = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        listeners.append(socket.create_server((host, int(port))))
    return listeners


def become_container(spec: Mapping[str, Any]) -> None:
    """Replace this process, which is process 1 of its namespace, by the container's command. Returns on errors only."""
    for kind in ("net", "uts", "ipc"):
        enter(f"/proc/{spec['sandbox']}/ns/{kind}")
    _make_root(spec)
    user = spec["user"]
    os.makedirs(spec["folder"], exist_ok=True)
    if spec["read_only"]:
        mount("", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.chdir(spec["folder"])
    if spec["drop_capabilities"]:
        for capability in range(41):
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    if spec["no_new_privileges"]:
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.umask(0o22)
    os.setsid()
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGCHLD,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvpe(spec["command"][0], spec["command"], spec["env"])
    except FileNotFoundError:
        raise OSError(f'exec: "{spec["command"][0]}": executable file not found in $PATH') from None


def _make_root(spec: Mapping[str, Any]) -> None:
    unshare(NEW_MOUNTS)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    scratch = spec["scratch"]
    mount("scratch", scratch, "tmpfs", 0, "mode=755")  # elsewhere than the root: else overlayfs refuses
    root = f"{scratch}/root"
    for name in ("upper", "work", "root", "tmp"):
        os.mkdir(f"{scratch}/{name}")
    os.chmod(f"{scratch}/tmp", 0o1777)
    mount("root", root, "overlay", 0, f"lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work")
    for folder in spec["searchable"]:
        os.chmod(root + folder, os.stat(root + folder).st_mode | 0o111)
    for folder in ("/tmp", "/var/tmp"):
        mount(f"{scratch}/tmp", root + folder, "", MS_BIND)
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    mount("/sys", f"{root}/sys", "", MS_BIND | MS_REC)
    _make_devices(f"{root}/dev")
    for one in spec["mounts"]:
        _mount_volume(one, root)
    check(_libc.chdir(os.fsencode(root)), root)
    check(_libc.syscall(PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    check(_libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def _make_devices(folder: str) -> None:
    mount("dev", folder, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        open(f"{folder}/{name}", "w").close()
        mount(f"/dev/{name}", f"{folder}/{name}", "", MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{folder}/{name}")
    mount("devpts", f"{folder}/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
    mount("shm", f"{folder}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"{folder}/{name}")


def _mount_volume(one: Mapping[str, Any], root: str) -> None:
    """Mount a folder or a file of this machine, or new memory."""
    target = root + os.path.normpath("/" + one["target"])
    source = one["source"]
    if not source:
        os.makedirs(target, exist_ok=True)
        mount("memory", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={one['size']}")
        return
    is_file = not stat.S_ISDIR(os.stat(source).st_mode)
    if is_file:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(target):
            os.unlink(target)
        if not os.path.exists(target):
            open(target, "w").close()
    else:
        os.makedirs(target, exist_ok=True)
    mount(source, target, "", MS_BIND | MS_REC)
    if one["read_only"]:
        mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY)
