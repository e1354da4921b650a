"""Names what a job left that cannot be uploaded, such as links and named pipes."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

from cloudtrain._system.safe_open import Beneath, Refused, Skip
from cloudtrain.errors import StorageError
from cloudtrain.storage.retry_policy import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

NAMED = 5
"""The most files that a warning names."""

LONGEST = 200
"""The most characters of a name that a warning shows."""

NOT_UTF_8 = "a name that is not UTF-8"
CHUNK = 1 << 20
UNREADABLE = "a file that cannot be read"


class Skipped:
    """Collects what is left out of one upload, for its warnings: one for all files, one for each folder of outputs."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        """A warning for each folder of outputs that is something else."""

    def add(self, name: str, why: str) -> None:
        """``why`` says what it is: ``a named pipe``."""
        self._found[name] = why

    def add_folder(self, name: str, kind: str) -> None:
        """``kind`` says what is in place of the folder of outputs; empty if it is the folder above it."""
        why = f"it is {kind}" if kind else f"{name.rpartition('/')[0]} is a link or a file"
        advice = "Copy the files into a folder of that name."
        self._folders[name] = f"nothing in {name} was uploaded: {why}, not a folder. {advice}"

    @property
    def warnings(self) -> list[str]:
        folders = [*self._folders.values()]
        if not self._found:
            return folders
        named = sorted(self._found.items())[:NAMED]
        names = ", ".join(f"{_short(shown(name))} ({why})" for name, why in named)
        rest = f" and {len(self._found) - NAMED} more" if len(self._found) > NAMED else ""
        return [
            *folders,
            f"not uploaded: {names}{rest}. Only regular files are, and links to files in the same folder: "
            "copy there what you need.",
        ]


def shown(name: str) -> str:
    """A file's name as it can be printed."""
    return name if name.isprintable() else ascii(name)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}...{name[-LONGEST // 2 :]}"


def is_utf_8(name: str) -> bool:
    """Whether a store can have an object of this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def opened(folder: Beneath, key: str, skip: Skip) -> Iterator[BinaryIO | None]:
    """A file, or the one to which a link leads; None if it is gone, and after ``skip`` if it cannot be read."""
    try:
        file = folder.open(key, follow=True)
    except FileNotFoundError:
        yield None
    except Refused as error:
        skip(key, error.why)
        yield None
    except PermissionError:
        skip(key, UNREADABLE)
        yield None
    else:
        cut = current().cut
        with file if cut is None else _cut_off(file, cut) as content:
            yield content


def _cut_off(file: BinaryIO, cut: Callable[[], float]) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_CutOff(file, cut), CHUNK))


class _CutOff(io.FileIO):
    """A file that cannot be read after ``cut``: a sparse file can have any size, and would take any time to read.

    Reads raise StorageError then.
    """

    def __init__(self, file: BinaryIO, cut: Callable[[], float]) -> None:
        super().__init__(os.dup(file.fileno()), "rb")
        file.close()
        self._cut = cut

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        if time.monotonic() > self._cut():
            raise StorageError("the upload of the outputs took longer than the stopped job has")
        return super().readinto(buffer)
