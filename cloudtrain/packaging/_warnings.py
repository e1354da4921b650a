"""Warnings about a source that can be packed, but probably contains a mistake."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress

from cloudtrain.packaging._tree import ArchiveMember, shown

LARGE = 50_000_000
"""In bytes. A warning names the largest files of a source with more content."""

_NAMED = 5

_SHELL_SCRIPTS = (".sh", ".bash")
_LONGEST_LINE = 4096
"""In bytes."""


def largest(members: Sequence[ArchiveMember]) -> list[tuple[str, int]]:
    """The names and sizes (in bytes) of the largest files, largest first."""
    files = sorted((member for member in members if member.is_file), key=lambda member: -member.size)
    return [(shown(member.name), member.size) for member in files[:_NAMED]]


def warnings_about(members: Sequence[ArchiveMember]) -> Iterator[str]:
    """Warnings, one sentence each: a large source, links that will be broken, scripts that no shell can run."""
    total = sum(member.size for member in members)
    if total > LARGE:
        named = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in largest(members))
        yield f"the source is large, {total / 1e6:.1f} MB; its largest files: {named}"
    names = {member.name for member in members} | {"."}
    for member in members:
        if member.link is not None and os.path.exists(member.path):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.link))
            if target not in names:
                yield f"the link {shown(member.name)} points to {shown(target)}, which is left out"
        if member.is_file and member.name.endswith(_SHELL_SCRIPTS) and _has_windows_line_ends(member):
            yield f"{shown(member.name)} has the line ends of Windows (CRLF), which a Linux shell cannot run"


def _has_windows_line_ends(member: ArchiveMember) -> bool:
    with suppress(OSError), open(member.path, "rb") as file:  # it has been packed, and may be gone now
        return b"\r\n" in file.readline(_LONGEST_LINE)
    return False
