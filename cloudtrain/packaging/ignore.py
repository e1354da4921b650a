"""Rules for files that the archive leaves out: ``.gitignore``, ``.cloudtrainignore``, and `ALWAYS_OUT`."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import InvalidSource
from cloudtrain.packaging._git_command import tracked_files

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec, PathSpec

ALWAYS_OUT = frozenset({".git", "__pycache__", ".ipynb_checkpoints", ".DS_Store"})

EDITOR_LOCK = ".#"
"""The prefix of Emacs's locks, which are dangling links next to files that are being edited."""


@dataclass(frozen=True)
class _Level:
    """The patterns of one ignore file; ``base`` is the length of its folder's path with the slash.

    For files, GitIgnoreSpec gives patterns for the file precedence over patterns for its parent folders. For
    folders that would be wrong: with ``*`` and ``!*/`` they would all be left out. There, the last match decides.
    """

    base: int
    files: GitIgnoreSpec
    folders: PathSpec[Any]


class Tracked:
    """The files below ``root`` that git tracks, and their folders. Git is called at the first lookup."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    @cached_property
    def _paths(self) -> set[str]:
        if not _folders_above(self._root) and not _is_repository(self._root):
            return set()
        paths: set[str] = set()
        for name in tracked_files(self._root):
            while name and f"{self._root}/{name}" not in paths:
                paths.add(f"{self._root}/{name}")
                name = name.rpartition("/")[0]
        return paths


@dataclass(frozen=True)
class IgnoreRules:
    """The ignore files from the root of a tree down to one folder, with git's semantics.

    The last matching pattern of the nearest ignore file with a match decides. Every ``.cloudtrainignore`` takes
    precedence over every ``.gitignore``, and a ``.gitignore`` leaves out no file that git tracks. As in git, a file
    below an ignored folder cannot be included again, so callers do not enter such folders. Unlike git, pathspec applies
    ``!folder/`` to the content of the folder too; at worst, that keeps a file that git would ignore.
    """

    cloudtrainignore: tuple[_Level, ...] = ()
    gitignore: tuple[_Level, ...] = ()
    tracked: Container[str] = frozenset()

    @classmethod
    def around(cls, root: str) -> IgnoreRules:
        """The rules in the ignore files above ``root``, up to the top of its git repository."""
        rules = cls(tracked=Tracked(root))
        for folder in _folders_above(root):
            rules = rules.within(folder)
        # The user chose this folder: rules that ignore all of it do not apply to a job's source.
        return cls(tracked=rules.tracked) if rules.leave_out(root, is_folder=True) else rules

    def within(self, folder: str, path: str | None = None) -> IgnoreRules:
        """These rules and those in the ignore files of ``folder``, which is at ``path`` in the tree."""
        base = len(path or folder) + 1
        return IgnoreRules(
            self.cloudtrainignore + _read(os.path.join(folder, ".cloudtrainignore"), base),
            self.gitignore + _read(os.path.join(folder, ".gitignore"), base),
            self.tracked,
        )

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether the file or folder at ``path``, an absolute path in the tree, is ignored."""
        decision = _decision(self.cloudtrainignore, path, is_folder)
        if decision is not None:
            return decision
        return bool(_decision(self.gitignore, path, is_folder)) and path not in self.tracked


def _decision(levels: Sequence[_Level], path: str, is_folder: bool) -> bool | None:
    """Whether the last matching pattern ignores ``path``; None if none matches."""
    for level in reversed(levels):
        relative = path[level.base :]
        check = level.folders.check_file(relative + "/") if is_folder else level.files.check_file(relative)
        if check.include is not None:
            return check.include
    return None


def _is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _folders_above(root: str) -> list[str]:
    """The folders from the top of the git repository down to the parent of ``root``; none outside a repository."""
    if _is_repository(root):
        return []
    folders: list[str] = []
    for folder in Path(root).parents:
        folders.insert(0, str(folder))
        if (folder / ".git").exists():
            return folders
    return []


def _read(path: str, base: int) -> tuple[_Level, ...]:
    try:
        # Like git, skip a byte order mark and accept any bytes.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except (FileNotFoundError, IsADirectoryError):
        return ()
    except OSError as error:
        raise InvalidSource(f"cannot read {path}: {error.strerror}") from error
    from pathspec import GitIgnoreSpec, PathSpec  # slow to import, and most folders have no ignore file

    spec = GitIgnoreSpec.from_lines(_pattern(line) for line in lines)
    return (_Level(base, spec, PathSpec(spec.patterns)),)


def _pattern(line: str) -> str:
    """The line, rewritten so that it means in pathspec what it means in git."""
    from pathspec import GitIgnoreSpec

    # In git, `data/**` matches the content of the folder only. pathspec also matches the folder itself, which would
    # disable a later `!data/keep`.
    line = re.sub(r"/\*\*\s*$", "/**/*", line)
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return ""  # git ignores an invalid line
    return line
