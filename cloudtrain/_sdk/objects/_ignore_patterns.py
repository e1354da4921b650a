"""The ``ignore_patterns`` of version 3: names that the SDK leaves out of the source, as in ``shutil``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from cloudtrain.packaging.ignore import ALWAYS_OUT, IgnoreRules


def unknown_patterns(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Those of ``patterns`` that match files in ``folder`` which cloudtrain would pack."""
    names = set(_packed_names(str(folder.absolute())))
    return [pattern for pattern in patterns if any(fnmatch(name, pattern) for name in names)]


def _packed_names(root: str) -> Iterator[str]:
    """The names of the files and folders in ``root`` that no ignore file leaves out."""
    rules = {root: IgnoreRules.around(root).within(root)}
    for folder, folders, files in os.walk(root):
        own = rules.pop(folder)
        kept = [
            name
            for name in folders
            if name not in ALWAYS_OUT and not own.leave_out(os.path.join(folder, name), is_folder=True)
        ]
        for name in kept:
            path = os.path.join(folder, name)
            rules[path] = own.within(path)
        folders[:] = kept
        yield from kept
        yield from (
            name
            for name in files
            if name not in ALWAYS_OUT and not own.leave_out(os.path.join(folder, name), is_folder=False)
        )
