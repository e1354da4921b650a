"""Lists the files, folders and links to pack, without reading any file.

A symbolic link whose target is in the same tree is kept, but made relative so that it is valid wherever the archive is
unpacked. A link that leads out of the tree is replaced by its target, as in the SageMaker SDK, because the job could
not access the target otherwise.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from cloudtrain.contract.source import DEFAULT_LIMITS, SourceLimits
from cloudtrain.errors import InvalidSource
from cloudtrain.packaging.ignore import ALWAYS_OUT, EDITOR_LOCK, IgnoreRules

_NAMED = 5
"""The most files that a message names."""

_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


class Changed(Exception):
    """The file or folder at ``path`` changed while the tree was walked or packed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A file, folder or link to pack. ``name`` is its path in the archive; ``link`` is the target of a link."""

    name: str
    path: str
    stat: os.stat_result
    link: str | None = None

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.stat.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.stat.st_mode)

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return self.stat.st_size if self.is_file else 0


def shown(name: str) -> str:
    """``name`` for use in messages, with bytes that are not UTF-8 escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Tree:
    """The files to pack.

    The content of ``source`` is at the top, or ``source`` itself if it is a file. Each dependency is next to it,
    under its base name, and the ``companions`` of a file, paths relative to its folder, under these paths.
    """

    source: Path
    dependencies: Sequence[Path] = ()
    companions: Sequence[str] = ()
    limits: SourceLimits = DEFAULT_LIMITS


def read_tree(tree: Tree, cache_dir: Path, left_out: list[str] | None = None) -> list[ArchiveMember]:
    """All members of the archive, sorted by name, without ``cache_dir``.

    Args:
        left_out: receives the names of the files and folders that ignore files leave out.

    Raises:
        InvalidSource: a file cannot be packed, two files have the same name in the archive, or the tree is too large.
        Changed: a file vanished during the walk.
    """
    members: dict[str, ArchiveMember] = {}
    skipped = os.path.realpath(cache_dir)
    source = tree.source
    names: list[str] = [] if left_out is None else left_out
    found = [_root(root, skipped, names, at_top=root is source) for root in (source, *tree.dependencies)]
    found.append(_companion(source.absolute().parent, name) for name in tree.companions)
    size = 0
    for members_of_root in found:
        for member in members_of_root:
            size += member.size
            if exceeded := tree.limits.exceeded(size, len(members) + 1):
                so_far = [*members.values(), member]
                what = name_largest(so_far) if size > tree.limits.size else _name_fullest(so_far)
                raise InvalidSource(
                    f"the source {shown(str(source))} has {exceeded[0]}, among them {what}",
                    hint=f"List in .cloudtrainignore what the job does not need, or raise its {exceeded[1]}. "
                    "Large data belongs in an input channel.",
                )
            other = members.setdefault(member.name, member)
            if other is not member:
                raise InvalidSource(
                    f"{shown(other.path)} and {shown(member.path)} would both be {shown(member.name)!r} "
                    "in the archive",
                    hint="Rename one of them, or list one in .cloudtrainignore.",
                )
    return sorted(members.values(), key=lambda member: member.name.encode("utf-8", "surrogateescape"))


def largest(members: Sequence[ArchiveMember]) -> list[tuple[str, int]]:
    """The names and sizes (in bytes) of the largest files, largest first."""
    files = sorted((member for member in members if member.is_file), key=lambda member: -member.size)
    return [(shown(member.name), member.size) for member in files[:_NAMED]]


def name_largest(members: Sequence[ArchiveMember]) -> str:
    """The largest files, for a message."""
    return ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in largest(members))


def _name_fullest(members: Sequence[ArchiveMember]) -> str:
    """The folder at the top with the most files and folders, for a message."""
    counts = Counter(member.name.partition("/")[0] for member in members)
    [(name, count)] = counts.most_common(1)
    return f"{count:,} in {shown(name)}" if count > 1 else f"{len(members):,} at the top"


def _companion(folder: Path, name: str) -> ArchiveMember:
    path = os.path.realpath(folder / name)
    try:
        return _packable(ArchiveMember(name, path, os.stat(path)))
    except OSError as error:
        raise failed_read(path, error) from error


@dataclass(frozen=True)
class _Folder:
    """A folder to walk: its path on disk, in the archive, and in the user's view of the tree."""

    path: str
    name: str
    """The path in the archive with a final slash; empty for the top."""
    seen_as: str
    rules: IgnoreRules
    bases: tuple[str, ...]
    """The real path of the root, then of each folder entered through a link. Links into the last one stay links."""
    skipped: str
    left_out: list[str]


def _root(root: Path, skipped: str, left_out: list[str], *, at_top: bool) -> Iterator[ArchiveMember]:
    # Keep the user's name (`lib`, even if it is a link); abspath gives `.` and `..` a name too.
    name = os.path.basename(os.path.abspath(root))
    path = os.path.realpath(root)
    try:
        status = os.stat(path)
    except OSError as error:
        raise InvalidSource(
            f"no such file or folder: {shown(str(root))} ({error.strerror})",
            hint="Check source_dir, entry_point and dependencies.",
        ) from error
    member = ArchiveMember(name, path, status)
    if not member.is_folder:
        yield _packable(member)
        return
    if not at_top:
        yield member
    prefix = "" if at_top else name + "/"
    yield from _walk(_Folder(path, prefix, path, IgnoreRules.around(path), (path,), skipped, left_out))


def _walk(folder: _Folder) -> Iterator[ArchiveMember]:
    try:
        names = os.listdir(folder.path)
    except OSError as error:
        raise failed_read(folder.path, error) from error
    folder = replace(folder, rules=folder.rules.within(folder.path, folder.seen_as))
    for name in names:
        if name not in ALWAYS_OUT and not name.startswith(EDITOR_LOCK):
            yield from _item(folder, name)


def _item(folder: _Folder, name: str) -> Iterator[ArchiveMember]:
    path = os.path.join(folder.path, name)
    seen_as = f"{folder.seen_as}/{name}"
    try:
        status = os.lstat(path)
        # isdir follows links, so that the pattern `data/` also matches a link to a folder.
        is_folder = os.path.isdir(path)
        if folder.rules.leave_out(seen_as, is_folder=is_folder):
            folder.left_out.append(f"{shown(folder.name + name)}{'/' if is_folder else ''}")
            return
        member = ArchiveMember(folder.name + name, path, status)
        if stat.S_ISLNK(status.st_mode):
            member = _link(member, folder)
    except OSError as error:
        raise failed_read(path, error) from error
    if not member.is_folder:
        yield _packable(member)
    elif member.path != folder.skipped and not os.path.lexists(os.path.join(member.path, "pyvenv.cfg")):
        bases = folder.bases if member.path == path else (*folder.bases, member.path)
        yield member
        yield from _walk(
            replace(folder, path=member.path, name=member.name + "/", seen_as=seen_as, bases=bases)
        )


def _link(member: ArchiveMember, folder: _Folder) -> ArchiveMember:
    """The member to pack for a link in ``folder``: a relative link, or the link's target."""
    target = os.path.realpath(member.path)
    try:
        status = os.stat(member.path)
    except FileNotFoundError:
        status = None
    except OSError as error:
        raise InvalidSource(
            f"cannot follow the link {shown(member.path)}: {error.strerror}",
            hint="Fix or remove the link, or list it in .cloudtrainignore.",
        ) from error
    if _is_within(target, folder.bases[-1]):
        return replace(member, link=PurePath(os.path.relpath(target, folder.path)).as_posix())
    if status is None:
        raise InvalidSource(
            f"the link {shown(member.path)} points to {shown(target)}, which does not exist",
            hint="Fix or remove the link, or list it in .cloudtrainignore.",
        )
    if any(_is_within(base, target) for base in folder.bases):
        raise InvalidSource(
            f"the link {shown(member.path)} points to {shown(target)}, which contains the link itself",
            hint="Remove the link, or list it in .cloudtrainignore.",
        )
    return ArchiveMember(member.name, target, status)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _packable(member: ArchiveMember) -> ArchiveMember:
    if member.is_file or member.link is not None:
        return member
    kind = _SPECIAL.get(stat.S_IFMT(member.stat.st_mode), "special file")
    raise InvalidSource(
        f"{shown(member.path)} is a {kind}, which cannot be packed",
        hint="Remove it, or list it in .cloudtrainignore.",
    )


def failed_read(path: str, error: OSError) -> InvalidSource | Changed:
    """The exception to raise if ``path``, which existed before, cannot be read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return Changed(path)
    return InvalidSource(
        f"cannot read {shown(path)}: {error.strerror}",
        hint="Make it readable, or list it in .cloudtrainignore.",
    )
