"""Uploads and downloads whole folders, many files in parallel."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Callable, TypeVar

from cloudtrain.errors import NotFound, StorageError
from cloudtrain.storage.atomic import TEMPORARY
from cloudtrain.storage.base import ObjectInfo, Progress, Store
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.file import walk
from cloudtrain.storage.retry_policy import current, using
from cloudtrain.storage.uri import check_key, own_file

MAX_WORKERS = 16
"""Files in transfer at the same time."""

Item = TypeVar("Item")

Select = Callable[[ObjectInfo], bool]
"""Whether to include an object; its key is relative to the tree."""


def list_folder(folder: Path) -> list[ObjectInfo]:
    """The files that `upload_tree` copies, sorted by key. Raises NotFound if the folder does not exist."""
    if not folder.is_dir():
        raise NotFound(f"the folder {folder} does not exist")
    with file_errors(str(folder)):
        return list(walk(folder))


def list_tree(store: Store, prefix: str = "", select: Select | None = None) -> list[ObjectInfo]:
    """The objects that `download_tree` copies, sorted by key; keys are relative to ``prefix``."""
    base = _base(prefix)
    entries = [replace(found, key=found.key[len(base) :]) for found in store.list(base)]
    return [entry for entry in entries if entry.key and (select is None or select(entry))]


def upload_tree(
    folder: Path, store: Store, prefix: str = "", progress: Progress | None = None
) -> list[ObjectInfo]:
    """Copy every file below ``folder`` to ``prefix/`` in ``store``; returns the copied files.

    The first error stops the transfer and is raised: NotFound for a missing folder, or an error of `Store.upload`.
    Files copied before it remain.
    """
    entries = list_folder(folder)
    base = _base(prefix)

    def upload(entry: ObjectInfo, report: Progress) -> None:
        store.upload(folder / entry.key, base + entry.key, report)

    move_each(entries, upload, progress)
    return entries


def download_tree(
    store: Store,
    folder: Path,
    prefix: str = "",
    progress: Progress | None = None,
    select: Select | None = None,
) -> list[ObjectInfo]:
    """Copy every object below ``prefix/`` in ``store`` into ``folder``; returns the copied objects.

    Like `download_entries`, for the objects of `list_tree`.
    """
    entries = list_tree(store, prefix, select)
    download_entries(store, entries, folder, prefix, progress)
    return entries


def download_entries(
    store: Store,
    entries: Sequence[ObjectInfo],
    folder: Path,
    prefix: str = "",
    progress: Progress | None = None,
) -> None:
    """Copy the listed objects below ``prefix/`` in ``store`` into ``folder``, which is created.

    Each file atomically replaces an existing one when it is complete. Empty objects ``name/``, with which S3
    consoles mark folders, become folders. Raises StorageError before copying anything if a key leads outside
    ``folder``, also through an existing link, or cannot be a file name on this system, or if two keys would be the same
    file. Otherwise the first error of `Store.download` stops the transfer and is raised.
    """
    keys = [entry.key[:-1] if entry.key.endswith("/") else entry.key for entry in entries]
    for key in keys:
        check_key(key, store.uri)
        own_file(folder, key)
    check_targets(folder, keys)
    base = _base(prefix)

    def download(entry: ObjectInfo, report: Progress) -> None:
        if entry.key.endswith("/"):
            _make_folder(folder / entry.key)
        else:
            store.download(base + entry.key, folder / entry.key, report)

    _make_folder(folder)
    move_each(entries, download, progress)


def check_targets(folder: Path, keys: Sequence[str]) -> None:
    """Raises StorageError if a file below ``folder`` would be written through a link, or two keys would be one file."""
    for parent in sorted({parent for key in keys for parent in _parents(key)}):
        if (folder / parent).is_symlink():
            raise StorageError(
                f"{folder / parent} is a link: the files would be written to another folder",
                hint="Remove the link, or choose an empty folder.",
            )
    pair = same_names(keys)
    if pair and _ignores_case(folder):
        raise StorageError(
            f"{pair[0]!r} and {pair[1]!r} would be the same file in {folder}, which ignores case",
            hint="Choose a folder on another file system, or rename one of the objects.",
        )


def same_names(keys: Iterable[str]) -> tuple[str, str] | None:
    """Two keys that are equal on a file system that ignores case, or forms of Unicode.

    >>> same_names(["model/A", "model/b", "model/a"])
    ('model/A', 'model/a')
    """
    found: dict[str, str] = {}
    for key in keys:
        other = found.setdefault(
            unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold()), key
        )
        if other != key:
            return other, key
    return None


def _parents(key: str) -> Iterator[str]:
    """The folders above ``key``, outermost first."""
    end = key.find("/")
    while end >= 0:
        yield key[:end]
        end = key.find("/", end + 1)


def _ignores_case(folder: Path) -> bool:
    """Whether two names in ``folder`` that differ only in case are one file."""
    _make_folder(folder)
    with (
        file_errors(str(folder)),
        tempfile.NamedTemporaryFile(dir=folder, prefix=f"{TEMPORARY}Case-") as file,
    ):
        path = Path(file.name)
        return path.with_name(path.name.swapcase()).exists()


def move_each(
    entries: Sequence[Item],
    move: Callable[[Item, Progress], None],
    progress: Progress | None,
) -> None:
    """Call ``move`` for all entries, several at a time.

    When one fails, the others stop at their next progress report, and its error is raised. Ctrl-C ends them likewise.
    """
    failures: list[BaseException] = []
    patience = current()

    def report(count: int) -> None:
        if failures:
            raise StorageError("stopped because another file failed")
        if progress:
            progress(count)

    def run(entry: Item) -> None:
        if failures:
            return
        try:
            with using(patience):
                move(entry, report)
        except BaseException as error:
            failures.append(error)

    with ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="cloudtrain-transfer") as pool:
        try:
            for _ in pool.map(run, entries):
                pass
        except BaseException as error:  # Ctrl-C
            failures.append(error)
            patience.interrupt()
    if failures:
        raise failures[0]


def _make_folder(folder: Path) -> None:
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)


def _base(prefix: str) -> str:
    prefix = prefix.strip("/")
    return prefix and prefix + "/"
