"""What is allowed in an archive, but seldom meant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from cloudtrain.packaging._tree import Entry, shown

LARGE = 50_000_000
"""Bytes of content past which the largest files are named in a warning."""

_NAMED = 5


def largest(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """Name and size in bytes of the largest files, the largest first."""
    files = sorted((entry for entry in entries if entry.is_file), key=lambda entry: -entry.size)
    return [(shown(entry.name), entry.size) for entry in files[:_NAMED]]


def warnings_about(entries: Sequence[Entry]) -> Iterator[str]:
    """One sentence each: a source that is large, a link that the job will find broken."""
    total = sum(entry.size for entry in entries)
    if total > LARGE:
        named = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in largest(entries))
        yield f"the source is large, {total / 1e6:.1f} MB; its largest files: {named}"
    names = {entry.name for entry in entries} | {"."}
    for entry in entries:
        if entry.link is not None and os.path.exists(entry.path):
            target = os.path.normpath(os.path.join(os.path.dirname(entry.name), entry.link))
            if target not in names:
                yield f"the link {shown(entry.name)} points to {shown(target)}, which is left out"
