"""The files, folders and links that go into the archive, found without reading any of them.

Links follow two rules. A link whose target lies in the same tree stays a link, relative, so that it holds
wherever the archive is unpacked. A link that leads out of the tree is replaced by what it points to, as the
SageMaker SDK does: the job has no other way to reach it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging._ignore import ALWAYS_OUT, IgnoreRules

_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


class Changed(Exception):
    """The tree changed while it was walked or packed; ``path`` is where."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to pack. ``name`` is its path in the archive, ``link`` the target if it is a link."""

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
        """Bytes of content."""
        return self.stat.st_size if self.is_file else 0


def signature(status: os.stat_result) -> tuple[int, ...]:
    """Changes whenever the content or the mode of a file does (but see `_index` for the exception)."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def shown(name: str) -> str:
    """``name`` for messages: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def read_tree(source: Path, dependencies: Sequence[Path], cache_dir: Path) -> list[Entry]:
    """Everything to pack, sorted by name.

    What is in ``source`` stands at the top, or ``source`` itself if it is a file; each dependency stands
    beside it under its own base name. ``cache_dir`` is never part of it.

    Raises:
        InvalidSource: something cannot be packed, or two things have the same name.
        Changed: a file vanished meanwhile.
    """
    entries: dict[str, Entry] = {}
    skipped = os.path.realpath(cache_dir)
    for root in (source, *dependencies):
        for entry in _root(root, skipped, at_top=root is source):
            other = entries.setdefault(entry.name, entry)
            if other is not entry:
                raise InvalidSource(
                    f"{shown(other.path)} and {shown(entry.path)} would both be {shown(entry.name)!r} "
                    "in the archive",
                    hint="Rename one of them, or leave one out by .cloudtrainignore.",
                )
    return sorted(entries.values(), key=lambda entry: entry.name.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class _Folder:
    """A folder to walk: where it is on disk, in the archive, and in the tree as the user sees it."""

    path: str
    name: str
    """With a slash at its end; empty for the top."""
    seen_as: str
    rules: IgnoreRules
    bases: tuple[str, ...]
    """The real folder that the walk began in, then each that a link led to. Links may lead into the last."""
    skipped: str


def _root(root: Path, skipped: str, *, at_top: bool) -> Iterator[Entry]:
    # The name is the user's (`lib` even if it is a link), and `.` and `..` have one too.
    name = os.path.basename(os.path.abspath(root))
    path = os.path.realpath(root)
    try:
        status = os.stat(path)
    except OSError as error:
        raise InvalidSource(
            f"no such file or folder: {shown(str(root))} ({error.strerror})",
            hint="Check source_dir, entry_point and dependencies.",
        ) from error
    entry = Entry(name, path, status)
    if not entry.is_folder:
        yield _packable(entry)
        return
    if not at_top:
        yield entry
    prefix = "" if at_top else name + "/"
    yield from _walk(_Folder(path, prefix, path, IgnoreRules.around(path), (path,), skipped))


def _walk(folder: _Folder) -> Iterator[Entry]:
    try:
        names = os.listdir(folder.path)
    except OSError as error:
        raise failed_read(folder.path, error) from error
    folder = replace(folder, rules=folder.rules.within(folder.path, folder.seen_as))
    for name in names:
        if name not in ALWAYS_OUT:
            yield from _item(folder, name)


def _item(folder: _Folder, name: str) -> Iterator[Entry]:
    path = os.path.join(folder.path, name)
    seen_as = f"{folder.seen_as}/{name}"
    try:
        status = os.lstat(path)
        # A pattern `data/` leaves out a link to a folder too: isdir follows links.
        if folder.rules.leave_out(seen_as, is_folder=os.path.isdir(path)):
            return
        entry = Entry(folder.name + name, path, status)
        if stat.S_ISLNK(status.st_mode):
            entry = _link(entry, folder)
    except OSError as error:
        raise failed_read(path, error) from error
    if not entry.is_folder:
        yield _packable(entry)
    elif entry.path != folder.skipped and not os.path.lexists(os.path.join(entry.path, "pyvenv.cfg")):
        bases = folder.bases if entry.path == path else (*folder.bases, entry.path)
        yield entry
        yield from _walk(
            replace(folder, path=entry.path, name=entry.name + "/", seen_as=seen_as, bases=bases)
        )


def _link(entry: Entry, folder: _Folder) -> Entry:
    """What to pack for the link ``entry`` in ``folder``: a relative link, or what it points to."""
    target = os.path.realpath(entry.path)
    try:
        status = os.stat(entry.path)
    except FileNotFoundError:
        status = None
    except OSError as error:
        raise InvalidSource(
            f"cannot follow the link {shown(entry.path)}: {error.strerror}",
            hint="Correct it, remove it, or leave it out by .cloudtrainignore.",
        ) from error
    if _is_within(target, folder.bases[-1]):
        return replace(entry, link=os.path.relpath(target, folder.path))
    if status is None:
        raise InvalidSource(
            f"the link {shown(entry.path)} points to {shown(target)}, which does not exist",
            hint="Correct it, remove it, or leave it out by .cloudtrainignore.",
        )
    if any(_is_within(base, target) for base in folder.bases):
        raise InvalidSource(
            f"the link {shown(entry.path)} points to {shown(target)}, which contains the link itself",
            hint="Remove it, or leave it out by .cloudtrainignore.",
        )
    return Entry(entry.name, target, status)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _packable(entry: Entry) -> Entry:
    if entry.is_file or entry.link is not None:
        return entry
    kind = _SPECIAL.get(stat.S_IFMT(entry.stat.st_mode), "special file")
    raise InvalidSource(
        f"{shown(entry.path)} is a {kind}, which cannot be packed",
        hint="Remove it, or leave it out by .cloudtrainignore.",
    )


def failed_read(path: str, error: OSError) -> InvalidSource | Changed:
    """What to raise where ``path``, once found, cannot be read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return Changed(path)
    return InvalidSource(
        f"cannot read {shown(path)}: {error.strerror}",
        hint="Make it readable, or leave it out by .cloudtrainignore.",
    )
