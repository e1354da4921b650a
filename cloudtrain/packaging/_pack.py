"""Packs a source directory and its dependencies into one archive, named by its content and cached."""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import replace
from cloudtrain.contract.source import DEFAULT_LIMITS, SourceLimits
from cloudtrain.errors import InvalidSource, StorageError
from cloudtrain.packaging._archive import is_intact, write_archive
from cloudtrain.packaging._git import GitState, git_state, is_in_repository
from cloudtrain.packaging._index import Index, take_fingerprint
from cloudtrain.packaging._secrets import ALLOWED, find_secrets
from cloudtrain.packaging._tree import ArchiveMember, Changed, Tree, largest, name_largest, read_tree, shown
from cloudtrain.packaging.cache import FILE_NAME
from cloudtrain.packaging.companions import Companions, companions
from cloudtrain.storage.atomic import temporary_sibling, write_file

LARGE = 50_000_000
"""Bytes of content above which a warning names the largest files of a source."""

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
        if member.link is not None:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.link))
            if target not in names:
                why = "is left out" if os.path.exists(member.path) else "does not exist"
                yield f"the link {shown(member.name)} points to {shown(target)}, which {why}"
        if member.is_file and member.name.endswith(_SHELL_SCRIPTS) and _has_windows_line_ends(member):
            yield f"{shown(member.name)} has the line ends of Windows (CRLF), which a Linux shell cannot run"


def _has_windows_line_ends(member: ArchiveMember) -> bool:
    with suppress(OSError), open(member.path, "rb") as file:  # it has been packed, but may be gone now
        return b"\r\n" in file.readline(_LONGEST_LINE)
    return False


LISTED = 50
"""The most findings that a message names."""

_ADVICE = (
    "List them in .cloudtrainignore, and pass secrets as variables: secrets=['NAME']. A line that is not a secret is "
    f"packed with the comment '{ALLOWED.decode()}' on it, or with allow_secrets=True."
)


@dataclass(frozen=True)
class SourceArchive:
    """A packed source. Sizes are in bytes."""

    path: Path
    """``<cache_dir>/<sha256>/sourcedir.tar.gz``, next to ``git.json`` and ``dirty.diff``."""
    sha256: str
    size: int
    largest: tuple[tuple[str, int], ...]
    """The names and sizes of the largest files, largest first."""
    warnings: tuple[str, ...]
    git: GitState | None
    companions: tuple[str, ...] = ()
    """The files that are packed with a single script, because it needs them."""
    left_out: tuple[str, ...] = ()
    """The files and folders that ignore files leave out, sorted; folders end with a slash."""


def pack(
    source: Path,
    dependencies: Sequence[Path] = (),
    *,
    cache_dir: Path,
    allow_secrets: bool = False,
    limits: SourceLimits = DEFAULT_LIMITS,
) -> SourceArchive:
    """Pack a source into ``sourcedir.tar.gz``; a single file together with its `companions`.

    The same tree gives the same bytes on every machine, for every user, at any time. An unchanged tree is not read
    again.

    Args:
        source: a directory, whose content goes to the top of the archive; or one file.
        dependencies: directories and files to add at the top of the archive, each under its base name.
        cache_dir: the folder of the cached archives.
        allow_secrets: pack files that look like secrets.
        limits: what the source may contain.

    Raises:
        InvalidSource: a file is missing, cannot be read or packed, looks like a secret, or keeps changing; or there
            is more than ``limits`` allow.
        StorageError: the cache cannot be written.
    """
    folder = source if source.is_dir() else source.absolute().parent
    added = Companions(()) if source.is_dir() else companions(source, dependencies)
    tree = Tree(source, dependencies, added.names, limits)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _git_state_meanwhile(folder) as git:
            members, sha256, left_out = _pack_still_tree(tree, cache_dir, allow_secrets)
        path = cache_dir / sha256 / FILE_NAME
        _record_git(path.parent, git())
        size = path.stat().st_size
    except OSError as error:
        raise StorageError(
            f"cannot write the source archive into {cache_dir}: {error.strerror}",
            hint="Free space there, or use another folder: set CLOUDTRAIN_HOME.",
        ) from error
    return SourceArchive(
        path=path,
        sha256=sha256,
        size=size,
        largest=tuple(largest(members)),
        warnings=(*added.warnings, *warnings_about(members)),
        git=git(),
        companions=added.names,
        left_out=tuple(left_out),
    )


@contextmanager
def _git_state_meanwhile(folder: Path) -> Iterator[Callable[[], GitState | None]]:
    """Determine the git state of ``folder`` while the block runs. After the block, the function returns the state."""
    if not is_in_repository(folder):
        yield lambda: None
        return
    from concurrent.futures import ThreadPoolExecutor  # with logging: a tenth of a short submission's imports

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(git_state, folder).result


def _pack_still_tree(
    tree: Tree, cache_dir: Path, allow_secrets: bool
) -> tuple[list[ArchiveMember], str, list[str]]:
    """The members, the SHA-256 of the cached archive, and the names left out. Tries twice if the tree changes."""
    with suppress(Changed):
        return _pack_tree(tree, cache_dir, allow_secrets)
    try:
        return _pack_tree(tree, cache_dir, allow_secrets)
    except Changed as change:
        raise InvalidSource(
            f"{shown(change.path)} keeps changing while it is packed",
            hint="Stop the program that writes to it, or list it in .cloudtrainignore.",
        ) from change


def _pack_tree(
    tree: Tree, cache_dir: Path, allow_secrets: bool
) -> tuple[list[ArchiveMember], str, list[str]]:
    walked_at = time.time_ns()
    left_out: list[str] = []
    members = read_tree(tree, cache_dir, left_out)
    fingerprint = take_fingerprint(members, walked_at)
    index = Index(cache_dir / "index" / _index_name(tree, allow_secrets))
    sha256 = index.find(fingerprint, members)
    if not sha256 or not is_intact(cache_dir / sha256 / FILE_NAME, sha256):
        if not allow_secrets:
            _refuse_secrets(members)
        sha256 = _write(members, cache_dir)
    index.save(fingerprint, sha256)
    return members, sha256, sorted(left_out)


def _write(members: Sequence[ArchiveMember], cache_dir: Path) -> str:
    with temporary_sibling(cache_dir / FILE_NAME) as scratch:
        with open(scratch, "wb") as file:
            sha256 = write_archive(members, file)
            file.flush()
            os.fsync(file.fileno())
        (cache_dir / sha256).mkdir(exist_ok=True)
        replace(scratch, cache_dir / sha256 / FILE_NAME)
    return sha256


def _index_name(tree: Tree, allow_secrets: bool) -> str:
    paths = [str(path.absolute()) for path in (tree.source, *tree.dependencies)]
    return hashlib.sha256(repr((paths, allow_secrets)).encode()).hexdigest() + ".json"


def _refuse_secrets(members: Sequence[ArchiveMember]) -> None:
    found = find_secrets(members)
    if found:
        listed = "".join(f"\n    {finding}" for finding in found[:LISTED])
        more = f"\n    and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise InvalidSource(f"these files look like secrets:{listed}{more}", hint=_ADVICE)


def _record_git(folder: Path, git: GitState | None) -> None:
    """Record the commit and the uncommitted changes next to the archive, to document what a job ran."""
    record, diff = folder / "git.json", folder / "dirty.diff"
    if git is None:  # the same content may have been packed from a repository before
        record.unlink(missing_ok=True)
        diff.unlink(missing_ok=True)
        return
    facts = {"commit": git.commit, "branch": git.branch, "dirty": git.dirty}
    write_file(record, msgspec.json.encode(facts))
    write_file(diff, git.diff.encode("utf-8", "surrogateescape"))
