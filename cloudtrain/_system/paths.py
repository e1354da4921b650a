"""Paths of this system in URIs."""

from __future__ import annotations

import re
import sys

if sys.platform == "win32":

    def own_path(path: str) -> str:
        """The path of this system that a ``file://`` URI names: ``C:/data`` for ``/C:/data``."""
        return without_slash(path)

else:

    def own_path(path: str) -> str:
        """The path of this system that a ``file://`` URI names."""
        return path


def without_slash(path: str) -> str:
    """
    >>> without_slash("/C:/data")
    'C:/data'
    >>> without_slash("/data")
    '/data'
    """
    return path[1:] if re.match(r"/[A-Za-z]:(/|$)", path) else path
