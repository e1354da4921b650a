"""The content of a requirements file: all that decides what an installer does with it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cloudtrain.runtime.digest import sha256_of

_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s+|=)?(?P<path>.+)")
_LINKS = re.compile(r"(?:-f|--find-links|-e|--editable)(?:\s+|=)?(?P<path>.+)")
_BUILT = re.compile(r"(?:^|/)(?:__pycache__|[^/]+\.egg-info|build/(?:lib|bdist\.|temp\.)[^/]*)/")
_PROJECT_FILES = ("pyproject.toml", "setup.py")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def content_of(file: Path, code: Path) -> Iterator[str]:
    """The lines of ``file`` and of the files that it includes, without comments, and the digests of local paths.

    Args:
        code: the folder that local paths are relative to.
    """
    yield from _content_of(file, code, set())


def _content_of(file: Path, code: Path, seen: set[Path]) -> Iterator[str]:
    if file in seen or not file.is_file():
        return  # the installer reports it
    seen.add(file)
    text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for raw in text.splitlines():
        line = " ".join(_COMMENT.sub("", raw).split())
        if not line:
            continue
        yield line
        include = _INCLUDE.fullmatch(line)
        if include:
            yield from _content_of((file.parent / include["path"]).absolute(), code, seen)
        elif path := _local_path(line, code):
            yield from _content_of_path(path)


def _content_of_path(path: Path) -> Iterator[str]:
    """The digest of what an installer takes from a local path: a file, a project, or the packages in a folder.

    Nothing else is read: a line may name any folder, ``/`` too.
    """
    try:
        if path.is_file() or any((path / name).is_file() for name in _PROJECT_FILES):
            yield digest_of(path)
            return
        for package in sorted(path.iterdir()):
            if _is_archive(package.name) and package.is_file():
                yield f"{package.name} {sha256_of(package)}"
    except OSError:
        return  # the installer reports it


def _local_path(line: str, code: Path) -> Path | None:
    """The file or folder of this machine that a line names; None if it names none."""
    link = _LINKS.fullmatch(line)
    target = link["path"] if link else line.partition(" @ ")[2] or line
    target = target.partition(" ;")[0].partition(" --")[0].partition("[")[0].strip()
    if target.startswith("file:"):
        try:
            target = unquote(urlsplit(target).path)
        except ValueError:  # the installer reports it
            return None
    elif "://" in target or not (
        link or target.startswith((".", "/")) or os.sep in target or _is_archive(target)
    ):
        return None
    path = code / target
    return path if path.exists() else None


def _is_archive(target: str) -> bool:
    return target.endswith((".whl", ".zip", ".tar.gz"))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder, except those that pip builds."""
    if path.is_file():
        return sha256_of(path)
    digest = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        name = file.relative_to(path).as_posix()
        if _BUILT.search(name):
            continue
        digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        digest.update(bytes.fromhex(sha256_of(file)))
    return digest.hexdigest()
