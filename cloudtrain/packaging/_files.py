"""Files that appear under their name only when they are whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def scratch_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """An open file in ``folder``, and its path. It is gone at the end, unless it was renamed."""
    descriptor, name = tempfile.mkstemp(prefix=".tmp-", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            yield file, Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def write_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, over what is there, all or nothing."""
    with scratch_file(path.parent) as (file, scratch):
        file.write(data)
        file.flush()
        os.replace(scratch, path)
