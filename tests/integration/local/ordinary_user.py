"""Runs commands as an ordinary user, although the tests run as root."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cloudtrain

USER = 64321
BECOME_USER = f"setpriv --reuid={USER} --regid={USER} --clear-groups --"

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def in_shell(script: str) -> list[str]:
    """A command that runs ``script`` as root, with its own mounts. ``"$@"`` is the command that it starts."""
    return ["unshare", "--mount", "sh", "-ec", script, "sh"]


def as_user(before: str = "", after: str = "") -> list[str]:
    """A command that starts another one as the user. The shell scripts run as root, before and after it."""
    return in_shell(f'{before}\n{_open_private_folders()}\n{BECOME_USER} "$@"\n{after}')


@contextmanager
def folder_of_user() -> Iterator[Path]:
    """A folder that the user owns and reaches, unlike pytest's."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp"))
    os.chown(path, USER, USER)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _open_private_folders() -> str:
    """A shell script that lets everyone pass the folders above this interpreter and cloudtrain, such as /root.

    It changes a layer above them, which only its own mount namespace has.
    """
    needed = (sys.executable, os.path.realpath(sys.executable), cloudtrain.__file__)
    above = {folder for path in needed for folder in Path(path).parents}
    private = [folder for folder in sorted(above) if not folder.stat().st_mode & stat.S_IXOTH]
    lines = ["mount -t tmpfs layers /mnt"] if private else []
    for number, folder in enumerate(map(str, private)):
        name, upper, work = shlex.quote(folder), f"/mnt/{number}", f"/mnt/{number}-work"
        lines += [
            f"mkdir {upper} {work}",
            f"mount -t overlay -o lowerdir={name},upperdir={upper},workdir={work} overlay {name}",
            f"chmod o+x {name}",
        ]
    return "\n".join(lines)
