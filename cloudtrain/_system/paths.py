"""Paths of the files for URIs and keys, with this system's separators and limits."""

from __future__ import annotations

import os
import re
import sys

from cloudtrain._system.patterns import pattern

_RESERVED = pattern(r"(?i)(CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³])(\..*)?")
"""Names of Windows devices, with any suffix."""
_FORBIDDEN = pattern(r'[\\:*?"<>|\x00-\x1f]')

if sys.platform == "win32":

    def own_path(path: str) -> str:
        """The path of this system that a ``file://`` URI names: ``C:/data`` for ``/C:/data``."""
        return without_slash(path)

    def unusable_name(key: str) -> str:
        """Why no file of this system can have this relative path with slashes; empty if one can."""
        return unusable_on_windows(key)

else:

    def own_path(path: str) -> str:
        """The path of this system that a ``file://`` URI names."""
        return path

    def unusable_name(key: str) -> str:
        """Why no file of this system can have this relative path with slashes; empty if one can."""
        return ""


def without_slash(path: str) -> str:
    """
    >>> without_slash("/C:/data")
    'C:/data'
    >>> without_slash("/data")
    '/data'
    """
    return path[1:] if re.match(r"/[A-Za-z]:(/|$)", path) else path


def unusable_on_windows(key: str) -> str:
    """Why no file of Windows can have this relative path with slashes; empty if one can.

    Windows would interpret some names differently, and leave the folder: a backslash separates folders there.
    """
    for part in key.split("/"):
        found = _FORBIDDEN.search(part)
        if found:
            return f"Windows does not allow {found[0]!r} in a file name"
        if _RESERVED.fullmatch(part):
            return f"{part} is the name of a device on Windows"
        if part.endswith((".", " ")):
            return "Windows removes a dot or space at the end of a file name"
    return ""


def relative(path: str, folder: str) -> str:
    """The path from ``folder`` to ``path``; ``..`` if there is none, as between Windows drives."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:
        return os.pardir
