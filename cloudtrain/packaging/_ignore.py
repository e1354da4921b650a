"""What stays out of the archive: ``.gitignore``, ``.cloudtrainignore``, and what never belongs in it."""

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


@dataclass(frozen=True)
class _Level:
    """The patterns of one ignore file; ``base`` is the length of its folder's path with the slash.

    For a file, GitIgnoreSpec sets patterns of the file itself above those of the folders it is in. For a
    folder it would do the same, and in ``*``, ``!*/`` the folder would be lost: there the last match holds.
    """

    base: int
    files: GitIgnoreSpec
    folders: PathSpec[Any]


@dataclass(frozen=True)
class IgnoreRules:
    """The ignore files from the top of a tree down to one folder, with git's meaning.

    The nearest file that says something about a path decides, by its last matching pattern. Every
    ``.cloudtrainignore`` wins over every ``.gitignore``. As in git, nothing below a folder that is left out
    can come back: do not enter it. pathspec lets ``!folder/`` speak for what is in the folder as well, which
    at worst keeps a file that git would leave out.
    """

    cloudtrainignore: tuple[_Level, ...] = ()
    gitignore: tuple[_Level, ...] = ()

    @classmethod
    def around(cls, root: str) -> IgnoreRules:
        """The rules that the git repository of the folder ``root`` has above it."""
        rules = cls()
        for folder in _folders_above(root):
            rules = rules.within(folder)
        # The user named this folder. Rules that leave all of it out are not meant for a job's source.
        return cls() if rules.leave_out(root, is_folder=True) else rules

    def within(self, folder: str, path: str | None = None) -> IgnoreRules:
        """These rules and those in the files of ``folder``, which stands at ``path`` in the tree."""
        base = len(path or folder) + 1
        return IgnoreRules(
            self.cloudtrainignore + _read(os.path.join(folder, ".cloudtrainignore"), base),
            self.gitignore + _read(os.path.join(folder, ".gitignore"), base),
        )

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether the entry at ``path``, an absolute path in the tree, stays out."""
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
    """The folders from the top of the git repository down to the parent of ``root``; none without one."""
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
        # git passes over a byte order mark, and takes any bytes.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except (FileNotFoundError, IsADirectoryError):
        return ()
    except OSError as error:
        raise InvalidSource(f"cannot read {path}: {error.strerror}") from error
    from pathspec import GitIgnoreSpec, PathSpec  # only where there is something to ignore

    spec = GitIgnoreSpec.from_lines(_pattern(line) for line in lines)
    return (_Level(base, spec, PathSpec(spec.patterns)),)


def _pattern(line: str) -> str:
    """The line as pathspec has to be given it to mean what git means."""
    from pathspec import GitIgnoreSpec

    # `data/**` is what is in the folder. pathspec takes it for the folder too, and then `!data/keep` is lost.
    line = re.sub(r"/\*\*\s*$", "/**/*", line)
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return ""  # git passes over a line that makes no sense
    return line
