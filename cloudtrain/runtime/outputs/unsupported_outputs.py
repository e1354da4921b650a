"""Finds files of a job that are not uploaded, such as pipes, certain links, and models in the working folder."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
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
    """Collects the entries that one upload skips, for a warning about all files and one for each folder of outputs."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        """A warning for each folder of outputs that is not a folder."""

    def add(self, name: str, why: str) -> None:
        """Add a skipped entry. ``why`` describes it, such as ``a named pipe``."""
        self._found[name] = why

    def add_folder(self, name: str, kind: str) -> None:
        """Add a folder of outputs that is a ``kind`` of file instead; empty if its parent is not a folder."""
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
    """A printable form of a file's name."""
    return name if name.isprintable() else ascii(name)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}...{name[-LONGEST // 2 :]}"


def is_utf_8(name: str) -> bool:
    """Whether a store can have an object with this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def opened(folder: Beneath, key: str, skip: Skip) -> Iterator[BinaryIO | None]:
    """Open a file or the target of a link. Yields None if it does not exist or, after ``skip``, if it is unreadable."""
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
    """A file that cannot be read after ``cut``, because a sparse file can have any size and take any time to read.

    After that time, reads raise StorageError.
    """

    def __init__(self, file: BinaryIO, cut: Callable[[], float]) -> None:
        super().__init__(os.dup(file.fileno()), "rb")
        file.close()
        self._cut = cut

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        if time.monotonic() > self._cut():
            raise StorageError("the upload of the outputs took longer than the stopped job has")
        return super().readinto(buffer)


MODEL_SUFFIXES = (
    ".pt", ".pth", ".pt.tar", ".pth.tar", ".ckpt", ".safetensors", ".h5", ".hdf5", ".keras", ".joblib", ".pkl", ".onnx",
    ".params", ".ubj", ".bst", ".npz", ".npy", ".msgpack", ".gguf", ".cbm",
    ".skops",
)  # fmt: skip
MODEL_NAMES = ("pytorch_model.bin", "tf_model.h5", "model.bin", "model.json", "model.txt", "model.model")
"""Names of models of Hugging Face, fastText, XGBoost and LightGBM whose suffix is ambiguous."""
MODEL_FOLDERS = ("saved_model.pb", "_CHECKPOINT_METADATA", "_METADATA", "MLmodel")
"""Files that mark their folder as a model: TensorFlow's SavedModel, a checkpoint of Orbax, and a model of MLflow."""

MOST_FILES = 20_000
"""The most files and folders to check."""

_NO_MODELS = {"__pycache__", "node_modules", "site-packages"}


def find_stray_models(folder: Path, since: float) -> list[str]:
    """Some paths below ``folder`` that look like models and were written after ``since``, seconds since the epoch."""
    found = []
    for path in itertools.chain(_written(folder, since), _above(folder, since)):
        found.append(shown(os.path.relpath(path, folder)))
        if len(found) > NAMED:
            break
    return sorted(found)


def _written(folder: Path, since: float) -> Iterator[str]:
    looked_at = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NO_MODELS)
        looked_at += len(folders) + len(files)
        if looked_at > MOST_FILES:
            return
        if any(name in files and _is_new(os.path.join(parent, name), since) for name in MODEL_FOLDERS):
            folders.clear()
            yield parent
            continue
        for name in sorted(files):
            path = os.path.join(parent, name)
            if _is_model(name) and _is_new(path, since):
                yield path


def _above(folder: Path, since: float) -> Iterator[str]:
    """Models next to ``folder``, because some scripts write to ``../model.pt``."""
    for name in sorted(os.listdir(folder.parent)):
        path = os.path.join(folder.parent, name)
        if _is_model(name) and os.path.isfile(path) and _is_new(path, since):
            yield path


def _is_model(name: str) -> bool:
    return name.endswith(MODEL_SUFFIXES) or name in MODEL_NAMES


def _is_new(path: str, since: float) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return state.st_mtime >= since and not os.path.islink(path)
