"""Decides what ``cloudtrain s3`` copies and deletes, before anything is changed, and carries it out."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.data.location import LIST_FIRST, Location, Tree, printable
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.storage import FileStore, ObjectInfo, Progress, S3Store
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.transfer import move_each
from cloudtrain.storage.uri import check_key, own_file


@dataclass(frozen=True)
class Copy:
    """One file to copy."""

    source: Tree
    entry: ObjectInfo
    target: Tree
    key: str

    @property
    def kind(self) -> str:
        """``upload``, ``download`` or ``copy`` (inside S3)."""
        if not _in_s3(self.source):
            return "upload"
        return "copy" if _in_s3(self.target) else "download"

    def __str__(self) -> str:
        return f"{self.kind}: {self.source.show(self.entry.key)} to {self.target.show(self.key)}"


@dataclass(frozen=True)
class Deletion:
    """One file to delete."""

    tree: Tree
    entry: ObjectInfo

    kind = "delete"

    def __str__(self) -> str:
        return f"delete: {self.tree.show(self.entry.key)}"


@dataclass(frozen=True)
class Plan:
    """The steps of a command: first all copies, then the deletions."""

    copies: Sequence[Copy] = ()
    deletions: Sequence[Deletion] = ()

    @property
    def steps(self) -> list[Copy | Deletion]:
        return [*self.copies, *self.deletions]

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(copy.entry.size for copy in self.copies)


@dataclass(frozen=True)
class Filter:
    """Selects the files that no ``exclude`` pattern matches, and those that an ``include`` pattern matches.

    Patterns have the shell's syntax, and match the path relative to the folder; ``*`` also matches slashes.
    """

    exclude: Sequence[str] = ()
    include: Sequence[str] = ()

    def __call__(self, entry: ObjectInfo) -> bool:
        return not _matches(entry.key, self.exclude) or _matches(entry.key, self.include)


def plan_copy(source: Location, target: Location, select: Filter, *, recursive: bool) -> Plan:
    """Copy one file, or with ``recursive`` all files below a folder.

    Raises:
        NotFound: there is nothing at ``source``.
        StorageError: the copy makes no sense, or the name of a file is impossible at ``target``.
    """
    _check_pair(source, target, "cp")
    if recursive:
        tree, files = source.find_tree()
        _check_overlap(tree, target.tree)
        return _checked([Copy(tree, entry, target.tree, entry.key) for entry in files if select(entry)])
    found = source.find_file()
    if found is None:
        source.find_tree()  # raises NotFound
        raise StorageError(
            f"{printable(source.text)} is a folder", hint="Add --recursive to copy what is in it."
        )
    tree, entry = found
    if not select(entry):
        return Plan()
    into, key = (target.tree, entry.key) if target.names_folder else target.behind_link.parent
    if into.show(key) == tree.show(entry.key):
        raise StorageError(f"{into.show(key)} would be copied onto itself")
    return _checked([Copy(tree, entry, into, key)])


def plan_sync(
    source: Location,
    target: Location,
    select: Filter,
    *,
    delete: bool = False,
    size_only: bool = False,
    force: bool = False,
) -> Plan:
    """Copy the files that are missing or different at ``target``; with ``delete``, delete all others there.

    A file is different if its size is, or if it has changed since it was copied: an upload compares the times of the
    last change, a download gives files the time of their object. ``size_only`` ignores the times.

    Raises:
        NotFound: there is nothing at ``source``.
        StorageError: as for `plan_copy`; or a deletion is probably a mistake, and ``force`` is false.
    """
    _check_pair(source, target, "rsync")
    tree, files, there = source.tree, _files_to_sync(source, delete=delete), target.tree
    _check_overlap(tree, there)
    found = {entry.key: entry for entry in there.files() if select(entry)}
    copies = [
        Copy(tree, entry, there, entry.key)
        for entry in files
        if select(entry) and _differs(entry, found.get(entry.key), size_only, is_download=not target.in_s3)
    ]
    names = {entry.key for entry in files}
    extra = [entry for key, entry in found.items() if key not in names] if delete else []
    if target.path is not None:
        extra = [entry for entry in extra if not _is_behind_link(target.path, entry.key)]
    if extra and not force:
        _check_deletion(source, target, len(extra), is_source_empty=not files)
    return Plan(_checked(copies).copies, [Deletion(there, entry) for entry in extra])


def plan_removal(target: Location, select: Filter, *, recursive: bool, force: bool = False) -> Plan:
    """Delete one object, or with ``recursive`` everything below a prefix.

    Raises:
        NotFound: there is nothing at ``target``.
        StorageError: ``target`` is not in S3; or it is a folder or a bucket, without ``recursive`` or ``force``.
    """
    if not target.in_s3:
        raise StorageError(
            f"{printable(target.text)} is on this machine",
            hint="Use rm for files. Objects are at s3://bucket/key.",
        )
    tree, found = target.tree, None if recursive else target.find_file()
    entries = [] if found else list(tree.store.list())
    if recursive and not entries:
        found = target.find_file()
    if found:
        tree, entries = found[0], [found[1]]
    elif not entries:
        raise NotFound(f"there is nothing at {printable(target.text)}", hint=LIST_FIRST)
    elif not recursive:
        raise StorageError(
            f"{printable(target.text)} is a folder with {len(entries):,} objects",
            hint="Add --recursive to remove all of them.",
        )
    entries = [entry for entry in entries if select(entry)]
    if entries and target.is_bucket and not force:
        raise StorageError(
            f"{printable(target.text)} is a whole bucket: all {len(entries):,} objects would be removed",
            hint="Name a prefix in it; or add --force, if you mean all of it.",
        )
    return Plan(deletions=[Deletion(tree, entry) for entry in entries])


def _files_to_sync(source: Location, *, delete: bool) -> list[ObjectInfo]:
    """The files at ``source``. An empty prefix is an error, except for a sync that deletes, which is refused later."""
    try:
        return source.find_tree()[1]
    except NotFound:
        if not delete or not source.in_s3:
            raise
        return source.tree.files()


def _differs(entry: ObjectInfo, other: ObjectInfo | None, size_only: bool, *, is_download: bool) -> bool:
    if other is None or entry.size != other.size:
        return True
    if size_only:
        return False
    if is_download:
        return int(entry.modified) != int(other.modified)
    return entry.modified > other.modified


def _check_pair(source: Location, target: Location, local_tool: str) -> None:
    if not source.in_s3 and not target.in_s3:
        raise StorageError(
            "both locations are on this machine", hint=f"Use {local_tool}. S3 is at s3://bucket/prefix."
        )


def _check_overlap(source: Tree, target: Tree) -> None:
    """Refuse to copy a folder into itself, which would never end, or to its parent, which might overwrite it."""
    here, there = source.store.uri.rstrip("/") + "/", target.store.uri.rstrip("/") + "/"
    if here.startswith(there) or there.startswith(here):
        raise StorageError(
            f"{printable(source.shown)} and {printable(target.shown)} overlap",
            hint="Copy to a prefix that does not contain the other one.",
        )


def _check_deletion(source: Location, target: Location, count: int, *, is_source_empty: bool) -> None:
    """Raises StorageError for a deletion that is probably a mistake."""
    what = f"--delete would remove {count:,} {'files' if count > 1 else 'file'} from {printable(target.text)}"
    hint = "See them with --dryrun --force. Add --force if you mean it."
    if is_source_empty:
        raise StorageError(f"there is nothing at {printable(source.text)}: {what}", hint=hint)
    if target.is_bucket:
        raise StorageError(f"{printable(target.text)} is a whole bucket: {what}", hint=hint)
    if target.path is not None:
        folder = target.path.resolve()
        if folder in (Path(folder.anchor), Path.home().resolve()) or (folder / ".git").exists():
            kind = "a git repository" if (folder / ".git").exists() else "your home or root folder"
            raise StorageError(f"{printable(target.text)} is {kind}: {what}", hint=hint)


def _is_behind_link(folder: Path, key: str) -> bool:
    """Whether a file is reached through a link below ``folder``. It is then elsewhere, and never deleted."""
    return any((folder / parent).is_symlink() for parent in Path(key).parents if parent != Path())


def _checked(copies: Sequence[Copy]) -> Plan:
    """Raises StorageError for a name that is impossible at its target, before anything is copied."""
    for copy in copies:
        check_key(copy.key, copy.target.store.uri)
        if isinstance(copy.target.store, FileStore):
            _check_replaceable(own_file(copy.target.store.folder, copy.key), copy.target.show(copy.key))
    return Plan(copies)


def _check_replaceable(path: Path, name: str) -> None:
    """Refuse to put a file in the place of a folder, a pipe or a device: root could replace even /dev/null."""
    if path.is_dir():
        raise StorageError(f"{name} is a folder", hint="Copy to another folder, or use another name.")
    if path.exists() and not path.is_file():
        raise StorageError(f"{name} is a pipe or a device", hint="Name a file.")


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def _in_s3(tree: Tree) -> bool:
    return tree.store.uri.startswith("s3://")


OnDone = Callable[["Copy | Deletion"], None]
"""Called after each step, possibly from several threads."""

BATCH = 1000
"""Objects to delete with one request."""


def carry_out(plan: Plan, on_done: OnDone, progress: Progress | None = None) -> None:
    """Carry out ``plan``: nothing is deleted before everything is copied.

    A file appears under its name only when it is complete. The first error, or Ctrl-C, ends the work and is raised;
    files that were copied before it remain.
    """

    def move(copy: Copy, report: Progress) -> None:
        _copy(copy, report)
        on_done(copy)

    move_each(plan.copies, move, progress)
    for start in range(0, len(plan.deletions), BATCH):
        batch = plan.deletions[start : start + BATCH]
        batch[0].tree.store.delete([deletion.entry.key for deletion in batch])
        for deletion in batch:
            on_done(deletion)


def _copy(copy: Copy, progress: Progress) -> None:
    source, target = copy.source.store, copy.target.store
    if isinstance(source, FileStore):
        target.upload(source.folder / copy.entry.key, copy.key, progress)
    elif isinstance(target, S3Store):
        target.copy_from(source, copy.entry.key, copy.key, progress)
    else:
        path = target.folder / copy.key
        source.download(copy.entry.key, path, progress)
        _set_time(path, copy.entry.modified)


def _set_time(path: Path, modified: float) -> None:
    """Give a downloaded file the time of its object, so that the next sync finds it unchanged."""
    with file_errors(str(path)):
        os.utime(path, (time.time(), modified))
