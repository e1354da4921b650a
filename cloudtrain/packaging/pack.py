"""Source directory and dependencies -> one archive, named by its content and kept in a cache."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cloudtrain.errors import InvalidSource, StorageError
from cloudtrain.packaging._archive import write_archive
from cloudtrain.packaging._git import GitState, git_state
from cloudtrain.packaging._index import Index, take_snapshot
from cloudtrain.packaging._secrets import find_secrets
from cloudtrain.packaging._tree import Changed, Entry, read_tree, shown
from cloudtrain.packaging._warnings import largest, warnings_about
from cloudtrain.storage.atomic import temporary_sibling, write_file

FILE_NAME = "sourcedir.tar.gz"


@dataclass(frozen=True)
class SourceArchive:
    """A packed source. Sizes are in bytes."""

    path: Path
    """``<cache_dir>/<sha256>/sourcedir.tar.gz``; ``git.json`` and ``dirty.diff`` lie beside it."""
    sha256: str
    size: int
    file_count: int
    content_size: int
    """What the files take unpacked."""
    largest: tuple[tuple[str, int], ...]
    """Name and size of the largest files, the largest first."""
    warnings: tuple[str, ...]
    git: GitState | None


def pack(
    source: Path,
    dependencies: Sequence[Path] = (),
    *,
    cache_dir: Path,
    allow_secrets: bool = False,
) -> SourceArchive:
    """Pack a source into ``sourcedir.tar.gz``.

    The same tree gives the same bytes, whoever packs it, wherever and whenever. A tree that has not changed
    since the last time is not read again.

    Args:
        source: a directory, whose content stands at the top of the archive, or one file.
        dependencies: directories and files that stand beside it, each under its own base name.
        cache_dir: where archives are kept.
        allow_secrets: pack files even if they look like secrets.

    Raises:
        InvalidSource: something is missing, cannot be read or packed, looks like a secret, or keeps changing.
        StorageError: the cache cannot be written.
    """
    folder = source if source.is_dir() else source.absolute().parent
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(1) as beside:
            git = beside.submit(git_state, folder)
            entries, sha256 = _pack_still_tree(source, dependencies, cache_dir, allow_secrets)
        path = cache_dir / sha256 / FILE_NAME
        _record_git(path.parent, git.result())
        size = path.stat().st_size
    except OSError as error:
        raise StorageError(
            f"cannot write the source archive into {cache_dir}: {error.strerror}",
            hint="Free space there, or name another cache folder.",
        ) from error
    sizes = [entry.size for entry in entries if entry.is_file]
    return SourceArchive(
        path=path,
        sha256=sha256,
        size=size,
        file_count=len(sizes),
        content_size=sum(sizes),
        largest=tuple(largest(entries)),
        warnings=tuple(warnings_about(entries)),
        git=git.result(),
    )


def _pack_still_tree(
    source: Path, dependencies: Sequence[Path], cache_dir: Path, allow_secrets: bool
) -> tuple[list[Entry], str]:
    """The tree and the SHA-256 of its archive, which is in the cache. Tries again, once, if it changes."""
    with suppress(Changed):
        return _pack_tree(source, dependencies, cache_dir, allow_secrets)
    try:
        return _pack_tree(source, dependencies, cache_dir, allow_secrets)
    except Changed as change:
        raise InvalidSource(
            f"{shown(change.path)} keeps changing while it is packed",
            hint="Stop what writes to it, or leave it out by .cloudtrainignore.",
        ) from change


def _pack_tree(
    source: Path, dependencies: Sequence[Path], cache_dir: Path, allow_secrets: bool
) -> tuple[list[Entry], str]:
    walked_at = time.time_ns()
    entries = read_tree(source, dependencies, cache_dir)
    snapshot = take_snapshot(entries, walked_at)
    index = Index(cache_dir / "index" / _index_name(source, dependencies, allow_secrets))
    sha256 = index.find(snapshot, entries)
    if not sha256 or not (cache_dir / sha256 / FILE_NAME).is_file():
        if not allow_secrets:
            _refuse_secrets(entries)
        sha256 = _write(entries, cache_dir)
    index.save(snapshot, sha256)
    return entries, sha256


def _write(entries: Sequence[Entry], cache_dir: Path) -> str:
    with temporary_sibling(cache_dir / FILE_NAME) as scratch:
        with open(scratch, "wb") as file:
            sha256 = write_archive(entries, file)
            file.flush()
            os.fsync(file.fileno())
        (cache_dir / sha256).mkdir(exist_ok=True)
        os.replace(scratch, cache_dir / sha256 / FILE_NAME)
    return sha256


def _index_name(source: Path, dependencies: Sequence[Path], allow_secrets: bool) -> str:
    paths = [str(path.absolute()) for path in (source, *dependencies)]
    return hashlib.sha256(repr((paths, allow_secrets)).encode()).hexdigest() + ".json"


def _refuse_secrets(entries: Sequence[Entry]) -> None:
    found = find_secrets(entries)
    if found:
        listed = "".join(f"\n    {shown(name)} ({rule})" for name, rule in found)
        raise InvalidSource(
            f"these files look like secrets:{listed}",
            hint="Name them in .cloudtrainignore, or pass allow_secrets if they are none.",
        )


def _record_git(folder: Path, git: GitState | None) -> None:
    """Leave the commit and the changes beside the archive: what a run was, for whoever asks later."""
    record, diff = folder / "git.json", folder / "dirty.diff"
    if git is None:  # the same content may have come from a repository before
        record.unlink(missing_ok=True)
        diff.unlink(missing_ok=True)
        return
    facts = {"commit": git.commit, "branch": git.branch, "dirty": git.dirty}
    write_file(record, msgspec.json.encode(facts))
    write_file(diff, git.diff.encode("utf-8", "surrogateescape"))
