"""Symbolic links that a container left behind. Outside it, they may point to files of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.platforms.container.inputs import WHOLE_CHANNELS


def drop_outward_links(base: Path) -> list[str]:
    """Remove the links below ``base``, a container's ``/opt/ml``, that point outside it.

    Links to ``/opt/ml/...`` are changed to point into ``base``. The links of `Inputs` are kept. Returns the removed
    links, relative to ``base``.
    """
    dropped = []
    home = os.path.realpath(base)
    for link in _links(base):
        target = os.readlink(link)
        if target.startswith(f"{WHOLE_CHANNELS}/"):
            continue
        if target.startswith(f"{DEFAULT_BASE}/"):
            inside = os.path.join(base, target.removeprefix(f"{DEFAULT_BASE}/"))
            os.unlink(link)
            os.symlink(os.path.relpath(inside, os.path.dirname(link)), link)
        if not os.path.realpath(link).startswith(home + os.sep):
            os.unlink(link)
            dropped.append(os.path.relpath(link, base))
    return dropped


def _links(base: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(base):
        for name in sorted([*folders, *files]):
            path = os.path.join(parent, name)
            if os.path.islink(path):
                yield path
