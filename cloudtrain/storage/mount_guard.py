"""Holds a FUSE mount for as long as the process that requested it lives.

    python .../cloudtrain/storage/mount_guard.py FOLDER COMMAND...

runs COMMAND, a FUSE client that mounts FOLDER and stays in the foreground, until standard input ends. Then, or when the
client ends by itself, FOLDER is unmounted. The starter holds the other end of standard input: the kernel closes it
however the starter ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

POLL_SECONDS = 0.1
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)
GRACE = 3.0
"""Seconds that the client has to end after the mount is gone."""


def unmount(folder: str) -> None:
    """Detach a FUSE mount now, also one that is in use or whose client is gone. Does nothing if there is none."""
    for program in ("fusermount3", "fusermount"):
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(
                [program, "-u", "-z", "-q", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            return


def main(folder: str, command: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, HANGUP):
        signal.signal(number, signal.SIG_IGN)  # only the starter ends the mount
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while client.poll() is None:
        if select.select([0], [], [], POLL_SECONDS)[0] and not os.read(0, 1):
            break
    unmount(folder)
    end = time.monotonic() + GRACE
    client.terminate()
    while client.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    if client.poll() is None:
        client.kill()
    return client.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
