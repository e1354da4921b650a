"""Opens files below a folder to which another program, such as a container or a script, writes at the same time.

The writer can replace any file or folder by a link, a named pipe or a device, at any moment. So every name is looked up
from an open folder, one component after the other, and the kernel never follows a link. A file is opened without
blocking, checked once it is open, and then used by its descriptor: nothing can be swapped between check and use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Callable, NamedTuple

from cloudtrain._system.descriptors import make_pipe, set_permissions
from cloudtrain._system.files import READ_REGULAR
from cloudtrain._system.trees import open_folder, permit, remove_entry

MOST_LINKS = 40
"""The most links that are followed for one file, as on Linux."""
DEEPEST = 1000
"""The depth to which a walk descends: far deeper than any path can name."""

OUTWARD = "a link out of its folder"

_SWAPPED = (errno.EINVAL, errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO)
"""The errors of opening a file or folder, or reading a link, if it has been replaced by something else."""

Skip = Callable[[str, str], object]
"""Called with the key and the kind of an entry that is left out."""


class Refused(OSError):
    """Raised for something that must not be opened. ``why`` completes "it is"."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(errno.EPERM, f"is {why}", key)
        self.why = why


class Found(NamedTuple):
    """A file, folder or link. ``key`` is relative, with slashes."""

    key: str
    status: os.stat_result
    target: str | None
    """The target of a link; else None."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class Beneath:
    """An open folder. The keys of its methods are relative paths with slashes, and cannot lead outside.

    Use it as a context manager. Threads can share it. It does not work on Windows, which cannot open folders.

    Args:
        folder: a folder that the writer cannot replace.
        aliases: absolute paths that mean this folder in the targets of links, such as its path inside a container.

    Raises OSError if it cannot be opened.
    """

    def __init__(self, folder: Path, aliases: Sequence[str] = ()) -> None:
        self._open(os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)), folder, aliases)

    def _open(self, descriptor: int, path: Path, aliases: Sequence[str]) -> None:
        self._top = descriptor
        self._path = path
        self._aliases = (str(path), *(alias for alias in aliases if alias != str(path)))

    def inside(self, key: str) -> Beneath:
        """A folder below this one. Raises Refused if it is something else, and OSError."""
        folder = Beneath.__new__(Beneath)
        folder._open(
            self._enter(_names(key)), self._path / key, [f"{alias}/{key}" for alias in self._aliases]
        )
        return folder

    def close(self) -> None:
        os.close(self._top)

    def __enter__(self) -> Beneath:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reads

    def open(self, key: str, *, follow: bool = False) -> BinaryIO:
        """A regular file.

        Args:
            follow: follow links to files below this folder.

        Raises Refused for anything else, and OSError.
        """
        names = _names(key)
        for count in range(MOST_LINKS):
            try:
                found = self._try(key, names, follow)
            except Refused as error:
                if count and error.why != OUTWARD:
                    raise Refused(key, f"a link to {error.why}") from None
                raise
            if not isinstance(found, list):
                return found
            names = found
        raise Refused(key, "a link to itself")

    def read(self, key: str, limit: int) -> bytes:
        """The first ``limit`` bytes of a regular file. Raises Refused and OSError."""
        with self.open(key) as file:
            return file.read(limit)

    def status(self, key: str) -> os.stat_result:
        """The status of a file, a folder, or the link itself. Raises Refused and OSError."""
        *parents, name = _names(key)
        with self._entered(parents) as parent:
            return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def walk(self, skip: Skip) -> Iterator[Found]:
        """All files, folders and links below, sorted by name; a folder precedes its content.

        Calls ``skip`` for everything else, and for folders that cannot be read.
        """
        pending = self._children("", skip)
        while pending:
            found = pending.pop()
            if found.is_folder:
                yield found
                pending += self._children(found.key, skip)
            elif found.is_file or found.target is not None:
                yield found
            else:
                skip(found.key, kind_of(found.status.st_mode))

    def _try(self, key: str, names: Sequence[str], follow: bool) -> BinaryIO | list[str]:
        """The file with these ``names``; or, if one of them is a link, the names to which it leads."""
        with contextlib.ExitStack() as stack:
            parent = stack.enter_context(self._entered(()))
            for position, name in enumerate(names):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    if not follow:
                        raise Refused(key, "a link")
                    with _not_swapped(key):
                        target = os.readlink(name, dir_fd=parent)
                    return [*self._resolve(key, names[:position], target), *names[position + 1 :]]
                if position == len(names) - 1:
                    return _open_file(parent, name, key, status)
                with _not_swapped(key):
                    inner = os.open(name, open_folder, dir_fd=parent)
                stack.callback(os.close, inner)
                parent = inner
        raise Refused(key, "a folder")

    def _resolve(self, key: str, folder: Sequence[str], target: str) -> list[str]:
        """The names that the ``target`` of a link in ``folder`` has below this folder. Raises Refused outside it."""
        inner = self.relative(target, "/".join(folder))
        if inner is None:
            raise Refused(key, OUTWARD)
        return _names(inner)

    def relative(self, target: str, folder: str = "") -> str | None:
        """The key to which a link in ``folder`` leads, judged by its text; None if that is outside."""
        names = folder.split("/") if folder else []
        if target.startswith("/"):
            alias = next((alias for alias in self._aliases if f"{target}/".startswith(f"{alias}/")), None)
            if alias is None:
                return None
            names, target = [], target[len(alias) :]
        for name in target.split("/"):
            if name == "..":
                if not names:
                    return None
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        return "/".join(names)

    def _children(self, key: str, skip: Skip) -> list[Found]:
        """The content of a folder, in reverse order of names; empty if the folder is gone."""
        if key.count("/") >= DEEPEST:
            skip(key, f"more than {DEEPEST} folders deep")
            return []
        found = []
        try:
            with self._entered(_names(key)) as folder, os.scandir(folder) as children:
                for child in children:
                    with contextlib.suppress(FileNotFoundError, Refused), _not_swapped(key):
                        target = os.readlink(child.name, dir_fd=folder) if child.is_symlink() else None
                        path = f"{key}/{child.name}" if key else child.name
                        found.append(Found(path, child.stat(follow_symlinks=False), target))
        except FileNotFoundError:
            return []
        except Refused as error:
            skip(key, error.why)
            return []
        except PermissionError:
            skip(key, "a folder that cannot be read")
            return []
        return sorted(found, key=lambda child: child.key, reverse=True)

    # -- writes

    def make_folder(self, key: str) -> None:
        """Create a folder and its parents, or give their owner access to them. Raises OSError.

        Anything else with one of these names is removed.
        """
        with self._made(_names(key)):
            pass

    def write(self, key: str, data: bytes, *, mode: int = 0o666) -> None:
        """Create or replace a file, and create the folders above it. Raises OSError.

        Args:
            mode: permissions of the file at every moment, subject to the umask.
        """
        *parents, name = _names(key)
        with self._made(parents) as parent:
            remove_entry(parent, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(name, flags, mode, dir_fd=parent), "wb") as file:
                file.write(data)

    def touch(self, key: str) -> None:
        """Create an empty file, unless there is a file already. Anything else is removed. Raises OSError."""
        try:
            self.open(key).close()
        except OSError:
            self.write(key, b"")

    def link(self, key: str, target: str) -> None:
        """Create or replace a symbolic link, and create the folders above it. Raises OSError."""
        *parents, name = _names(key)
        with self._made(parents) as parent:
            remove_entry(parent, name)
            os.symlink(target, name, dir_fd=parent)

    def remove(self, key: str) -> None:
        """Remove a file, a link, or a folder with its content, if it exists. Raises OSError."""
        *parents, name = _names(key)
        with contextlib.suppress(FileNotFoundError, Refused), self._entered(parents) as parent:
            remove_entry(parent, name)

    def allow(self, key: str, mode: int) -> None:
        """Add permissions to a file or folder, or to this folder. Raises Refused and OSError."""
        *parents, name = _names(key) or ["."]
        with self._entered(parents) as parent, _not_swapped(key):
            descriptor = os.open(name, READ_REGULAR, dir_fd=parent)
        try:
            set_permissions(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | mode)
        finally:
            os.close(descriptor)

    def contents(self) -> list[Found]:
        """Everything directly in this folder, of any kind. Raises OSError."""
        return self._children("", lambda key, why: None)

    def make_pipe(self, name: str, mode: int) -> None:
        """Create a named pipe with these permissions, regardless of the umask. Raises OSError."""
        make_pipe(self._path, self._top, name)
        reader = self._open_pipe(name, os.O_RDONLY)
        try:
            set_permissions(reader, mode)
        finally:
            os.close(reader)

    def open_pipe(self, name: str) -> int:
        """The writing end of a named pipe, which does not block. Raises OSError, ENXIO if it has no reader."""
        return self._open_pipe(name, os.O_WRONLY)

    def _open_pipe(self, name: str, flags: int) -> int:
        no_wait = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        pipe = os.open(name, flags | no_wait, dir_fd=self._top)
        mode = os.fstat(pipe).st_mode
        if not stat.S_ISFIFO(mode):
            os.close(pipe)
            raise Refused(name, kind_of(mode))
        return pipe

    def _enter(self, names: Sequence[str]) -> int:
        """The descriptor of a folder, to be closed by the caller. Raises Refused and OSError."""
        folder = os.open(
            ".", open_folder, dir_fd=self._top
        )  # a duplicated descriptor would share the position of a listing
        with _not_swapped("/".join(names)):
            for name in names:
                try:
                    inner = os.open(name, open_folder, dir_fd=folder)
                finally:
                    os.close(folder)
                folder = inner
        return folder

    @contextlib.contextmanager
    def _entered(self, names: Sequence[str]) -> Iterator[int]:
        folder = self._enter(names)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _made(self, names: Sequence[str]) -> Iterator[int]:
        """The descriptor of a folder, which is created if necessary."""
        for count, name in enumerate(names):
            with self._entered(names[:count]) as parent:
                try:
                    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                except FileNotFoundError:
                    os.mkdir(name, dir_fd=parent)
                    continue
                if stat.S_ISDIR(status.st_mode):
                    permit(parent, name, status)
                else:
                    os.unlink(name, dir_fd=parent)
                    os.mkdir(name, dir_fd=parent)
        with self._entered(names) as folder:
            yield folder


def kind_of(mode: int) -> str:
    """The kind of a file with this mode, for messages."""
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISCHR, "a device"),
    )
    return next((name for matches, name in kinds if matches(mode)), "a special file")


def _open_file(parent: int, name: str, key: str, status: os.stat_result) -> BinaryIO:
    """``status`` is from just before: it is checked first, as opening a device can have side effects."""
    if not stat.S_ISREG(status.st_mode):
        raise Refused(key, kind_of(status.st_mode))
    with _not_swapped(key):
        file = os.fdopen(os.open(name, READ_REGULAR | getattr(os, "O_NOCTTY", 0), dir_fd=parent), "rb")
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise Refused(key, kind_of(mode))
    return file


@contextlib.contextmanager
def _not_swapped(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _SWAPPED:
            raise Refused(key, "not a file or folder") from None
        raise


def _names(key: str) -> list[str]:
    """The parts of a key. Raises ValueError if it could lead outside."""
    names = key.split("/") if key else []
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise ValueError(f"{key!r} is not a path below a folder")
    return names
