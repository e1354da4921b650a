"""Rules for files that the archive leaves out: ``.gitignore``, ``.cloudtrainignore``, and `ALWAYS_OUT`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import InvalidSource

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec, PathSpec

ALWAYS_OUT = frozenset({".git", "__pycache__", ".ipynb_checkpoints", ".DS_Store"})

EDITOR_LOCK = ".#"
"""The names of Emacs's locks start with this: links to nothing, next to each file that is being edited."""


@dataclass(frozen=True)
class _Level:
    """The patterns of one ignore file; ``base`` is the length of its folder's path with the slash.

    For files, GitIgnoreSpec gives patterns for the file precedence over patterns for its parent folders. For
    folders that would be wrong: with ``*`` and ``!*/`` they would all be left out. There, the last match decides.
    """

    base: int
    files: GitIgnoreSpec
    folders: PathSpec[Any]


@dataclass(frozen=True)
class IgnoreRules:
    """The ignore files from the root of a tree down to one folder, with git's semantics.

    The last matching pattern of the nearest ignore file with a match decides. Every ``.cloudtrainignore`` takes
    precedence over every ``.gitignore``. As in git, a file below an ignored folder cannot be included again, so
    callers do not enter such folders. Unlike git, pathspec applies ``!folder/`` to the content of the folder too;
    at worst, that keeps a file that git would ignore.
    """

    cloudtrainignore: tuple[_Level, ...] = ()
    gitignore: tuple[_Level, ...] = ()

    @classmethod
    def around(cls, root: str) -> IgnoreRules:
        """The rules in the ignore files above ``root``, up to the top of its git repository."""
        rules = cls()
        for folder in _folders_above(root):
            rules = rules.within(folder)
        # The user chose this folder: rules that ignore all of it do not apply to a job's source.
        return cls() if rules.leave_out(root, is_folder=True) else rules

    def within(self, folder: str, path: str | None = None) -> IgnoreRules:
        """These rules and those in the ignore files of ``folder``, which is at ``path`` in the tree."""
        base = len(path or folder) + 1
        return IgnoreRules(
            self.cloudtrainignore + _read(os.path.join(folder, ".cloudtrainignore"), base),
            self.gitignore + _read(os.path.join(folder, ".gitignore"), base),
        )

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether the file or folder at ``path``, an absolute path in the tree, is ignored."""
        for level in (*reversed(self.cloudtrainignore), *reversed(self.gitignore)):
            relative = path[level.base :]
            check = (
                level.folders.check_file(relative + "/") if is_folder else level.files.check_file(relative)
            )
            decision = check.include
            if decision is not None:
                return decision
        return False


def _folders_above(root: str) -> list[str]:
    """The folders from the top of the git repository down to the parent of ``root``; none outside a repository."""
    if os.path.lexists(os.path.join(root, ".git")):
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
    """The line, rewritten so that pathspec gives it the meaning that it has in git."""
    from pathspec import GitIgnoreSpec

    # In git, `data/**` matches the content of the folder only. pathspec also matches the folder itself, which would
    # disable a later `!data/keep`.
    line = re.sub(r"/\*\*\s*$", "/**/*", line)
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return ""  # git ignores an invalid line
    return line
