"""Finds the files next to a script that it needs to run: the modules that it imports, and its requirements."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import NamedTuple

from cloudtrain._system.patterns import pattern
from cloudtrain.errors import InvalidSource
from cloudtrain.packaging.ignore import ALWAYS_OUT, IgnoreRules
from cloudtrain.packaging.imports import files_of, imports_of

REQUIREMENTS = "requirements.txt"
_INCLUDE = pattern(r"\s*(?:-r|-c|--requirement|--constraint)[ =]?\s*(\S+)")
_LOCAL = pattern(
    r"\s*(?:(?:-e\s*|--editable[ =]\s*)?(?:\.|file:(?!/))\S*|\S+\s*@\s*file:(?!/)\S+"
    r"|[^\s:/][^\s:]*\.(?:whl|tar\.gz|zip))\s*(?:#.*)?$"
)
"""A requirement that pip builds or installs from files below the working folder."""


class Companions(NamedTuple):
    """The files to pack with a script: paths relative to its folder, sorted; and warnings, one sentence each."""

    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class _Beside:
    """The files, or the folders, below a folder that are not ignored."""

    def __init__(self, root: str, *, folders: bool) -> None:
        self._root, self._folders = root, folders
        self._rules = {root: IgnoreRules.around(root).within(root)}

    def __contains__(self, name: object) -> bool:
        path = os.path.join(self._root, str(name))
        exists = os.path.isdir(path) if self._folders else os.path.isfile(path)
        return exists and not self._ignored(str(name))

    def _ignored(self, name: str) -> bool:
        path = self._root
        parts = name.split("/")
        for part in parts:
            rules = self._rules.get(path) or self._rules.setdefault(path, self._within(path))
            path = f"{path}/{part}"
            if part in ALWAYS_OUT or rules.leave_out(path, is_folder=os.path.isdir(path)):
                return True
        return False

    def _within(self, path: str) -> IgnoreRules:
        return self._rules[os.path.dirname(path)].within(path)


def companions(script: Path, dependencies: Collection[Path] = ()) -> Companions:
    """The files that a job packs with a single script.

    These are the modules next to the script that it imports, directly or through others; all modules of a package of
    which it imports a part; and ``requirements.txt`` with the requirements files that this includes. Modules are found
    by parsing, so one that is imported by a computed name is missed unless it is in an imported package. Ignored files,
    modules that ``dependencies`` replace, and requirements that refer to other files of the folder are left out.
    """
    root = os.path.realpath(script.absolute().parent)
    files, folders = _Beside(root, folders=False), _Beside(root, folders=True)
    replaced = {path.absolute().name.removesuffix(".py") for path in dependencies}
    found = _requirements(root, REQUIREMENTS, files, set())
    warnings = [
        _not_packed(name, line)
        for name in sorted(found)
        for line in _lines(root, name)
        if _needs_more(name, line, found)
    ]
    waiting, seen = [script.name], {script.name}
    while waiting:
        name = waiting.pop()
        own = {
            file
            for module in _imports(root, name)
            if module.partition(".")[0] not in replaced
            for path in files_of("", module, files, folders)
            for file in _whole_package(root, path, files)
        }
        waiting += own - seen
        seen |= own
    names = {path.absolute().name for path in dependencies}
    found = set() if warnings else found
    return Companions(tuple(sorted((found | seen) - {script.name} - names)), tuple(warnings[:1]))


def _imports(root: str, name: str) -> list[str]:
    """The modules that a file imports; none if it is not a Python file that compiles."""
    if not name.endswith(".py"):
        return []
    try:
        with open(os.path.join(root, name), "rb") as file:
            return list(imports_of(file.read(), name, optional=True))
    except (OSError, InvalidSource, RecursionError):
        return []  # the check of the entry point, or Python in the job, reports the error


def _whole_package(root: str, name: str, files: _Beside) -> set[str]:
    """The file, and if it is the ``__init__.py`` of a package, all modules of the package and its subpackages."""
    if name not in files:
        return set()  # a folder without __init__.py: its modules are found one by one
    folder, _, base = name.rpartition("/")
    if base != "__init__.py":
        return {name}
    found = set()
    for path, below, here in os.walk(os.path.join(root, folder)):
        if "__init__.py" not in here:
            below.clear()
            continue
        relative = PurePath(path).relative_to(root).as_posix()
        found |= {f"{relative}/{file}" for file in here if file.endswith(".py")}
    return {file for file in found if file in files}


def _requirements(root: str, name: str, files: _Beside, found: set[str]) -> set[str]:
    """A requirements file below the folder, and those that it includes."""
    if name not in found and not name.startswith(("..", "/")) and name in files:
        found.add(name)
        for line in _lines(root, name):
            if include := _INCLUDE.match(line):
                _requirements(root, _included(name, include[1]), files, found)
    return found


def _included(by: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(by), name))


def _needs_more(name: str, line: str, found: set[str]) -> bool:
    """Whether a line of a requirements file refers to a file in its folder, or near it, that is not packed."""
    if include := _INCLUDE.match(line):
        return (
            "://" not in include[1]
            and not include[1].startswith("/")
            and _included(name, include[1]) not in found
        )
    return bool(_LOCAL.match(line))


def _lines(root: str, name: str) -> list[str]:
    return Path(root, name).read_text(encoding="utf-8", errors="replace").splitlines()


def _not_packed(name: str, line: str) -> str:
    return (
        f"{REQUIREMENTS} is not packed, as {name} refers to other files of its folder ({line.strip()}): "
        "to install it, pack the folder with --source-dir"
    )
