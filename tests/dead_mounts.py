"""A file system whose server has died, as far as a process can see: what it asks for, it never gets.

It is one of FUSE (the kernel's Documentation/filesystems/fuse.rst): this process takes its requests and answers only
the first one, the handshake. A process that waits for an answer is in uninterruptible sleep. SIGKILL does not end it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

_IN, _OUT = struct.Struct("=IIQQIIII"), struct.Struct("=IiQ")  # fuse_in_header, fuse_out_header
_INIT = 26
_INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
_DETACH = 2


@contextlib.contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """Mount it at an existing folder. At the end, all who wait get an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"dead", os.fsencode(folder), b"fuse.dead", 0, options.encode()):
        os.close(device)
        raise OSError(ctypes.get_errno(), "mount")
    Thread(target=_serve, args=(device,), daemon=True).start()
    try:
        yield
    finally:
        _abort(folder)
        libc.umount2(os.fsencode(folder), _DETACH)


def _serve(device: int) -> None:
    with contextlib.suppress(OSError):  # ENODEV: it is unmounted
        while True:
            request = os.read(device, 1 << 20)
            _, kind, unique, *_ = _IN.unpack_from(request)
            if kind == _INIT:
                answer = _INIT_OUT.pack(7, 31, 0, 0, 0, 0, 1 << 16, 1, 0, 0, 0)
                os.write(device, _OUT.pack(_OUT.size + len(answer), 0, unique) + answer)
    os.close(device)


def _abort(folder: Path) -> None:
    """End the connection: see the control file system in fuse.rst."""
    point = os.fsencode(folder)
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(b" ")
        if fields[4] == point:
            minor = fields[2].split(b":")[1].decode()
            control = Path("/sys/fs/fuse/connections")
            if not (control / minor).is_dir():
                ctypes.CDLL(None).mount(b"fusectl", os.fsencode(control), b"fusectl", 0, None)
            (control / minor / "abort").write_text("1")
