"""Warnings about a source that can be packed, but probably contains a mistake."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress

from cloudtrain.packaging._tree import ArchiveMember, name_largest, shown

LARGE = 50_000_000
"""In bytes. A warning names the largest files of a source with more content."""

_SHELL_SCRIPTS = (".sh", ".bash")
_LONGEST_LINE = 4096
"""In bytes."""


def warnings_about(members: Sequence[ArchiveMember]) -> Iterator[str]:
    """Warnings, one sentence each: a large source, links that will be broken, scripts that no shell can run."""
    total = sum(member.size for member in members)
    if total > LARGE:
        yield f"the source is large, {total / 1e6:.1f} MB; its largest files: {name_largest(members)}"
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
