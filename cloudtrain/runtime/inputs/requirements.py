"""Installs the script's requirements, once per host, before the launch.

In a container, they are installed into the image's Python. On a user's machine (if `Settings.requirements_cache` is
set), no existing environment is modified: they are installed into a virtual environment on top of the script's
interpreter.
The environment is cached under a hash of all its inputs, so that jobs with the same requirements share it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cloudtrain._system.patterns import pattern
from cloudtrain.runtime.digest import sha256_of
from cloudtrain.runtime.inputs.installer import (
    REQUIREMENTS,
    Interpreter,
    Part,
    Say,
    install_part,
    package_part,
    run,
)
from cloudtrain.runtime.inputs.overlay import Overlay

_INCLUDE = pattern(r"(?:-r|-c|--requirement|--constraint)(?:\s+|=)?(?P<path>.+)")
_LINKS = pattern(r"(?:-f|--find-links|-e|--editable)(?:\s+|=)?(?P<path>.+)")
_BUILT = pattern(r"(?:^|/)(?:__pycache__|[^/]+\.egg-info|build/(?:lib|bdist\.|temp\.)[^/]*)/")
_PROJECT_FILES = ("pyproject.toml", "setup.py")
_COMMENT = pattern(r"(?:^|\s)#.*")


def content_of(file: Path, code: Path) -> Iterator[str]:
    """The lines of ``file`` and of the files that it includes, without comments, and the digests of local paths.

    Args:
        code: the folder to which local paths are relative.
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
    """The digests of what an installer may use at a local path: a file, a project, or the packages in a folder.

    Nothing else is read, because a line may name any folder, even ``/``.
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
    """The existing file or folder of this machine that a line names; None if it does not name one."""
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
    """The SHA-256 of a file, or of the names and contents of a folder's files, except files that pip builds."""
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


WAIT_SECONDS = 0.2
"""The least time of a wait for an environment's lock that shows that another host was installing into it."""
FAIL_SECONDS = 2.0
"""The time that the failure of one host may take to end the others."""

HAS_COMMAND = Path(__file__).is_file()
"""Whether cloudtrain is installed here, with its command. It is not if this is a bundled runtime, a zip archive."""

_DISTRIBUTIONS = (".dist-info", ".egg-info", ".egg-link", ".pth")


def install(
    code: Path,
    *,
    package: bool,
    cache: str = "",
    python: str = sys.executable,
    say: Say = lambda line: None,
    leads: bool = True,
) -> str:
    """Install ``requirements.txt`` and the package in the code folder, and return the interpreter to use.

    Args:
        package: whether the code folder is a package to install.
        cache: the folder of cached environments; empty to install into ``python`` itself.
        python: the interpreter that runs the script.
        say: called with each line about the progress.
        leads: whether this host reports for all hosts of this machine that wait, or find the environment complete.

    Raises:
        RequirementsFailed: the installation failed; the report contains the installer's last lines.
    """
    parts = [REQUIREMENTS] if any(content_of(code / "requirements.txt", code)) else []
    if package:
        parts.append(package_part("setup.py" if (code / "setup.py").is_file() else "pyproject.toml"))
    if not parts:
        return python
    base = Interpreter.inspect(python)
    if not cache:
        _install(parts, python, base, code, say)
        return python
    overlay = Overlay(Path(cache) / _fingerprint(base, code, parts))
    was_complete = overlay.is_complete
    asked = time.monotonic()
    waiting = f"Waiting for another host or job, which installs {_names(parts)}"
    with overlay.locked(on_wait=lambda: leads and say(waiting)):
        waited = time.monotonic() - asked
        if overlay.is_complete and not overlay.is_intact:
            say(f"{overlay.path} was changed or damaged after it was built. Building it again")
        elif overlay.is_complete:
            overlay.use()
            if leads and was_complete:
                say(f"{_names(parts)}: installed before, {_shown(overlay)}")
            return overlay.python
        if waited > WAIT_SECONDS:
            # another host has just failed; if it is of this job, this host is ended during the sleep
            time.sleep(FAIL_SECONDS)
        shutil.rmtree(overlay.path, ignore_errors=True)
        try:
            _make_overlay(overlay, base)
            _install(parts, overlay.python, base, code, say)
            overlay.complete()
        except BaseException:
            shutil.rmtree(overlay.path, ignore_errors=True)
            raise
    removal = ". Remove it with: cloudtrain clean --caches" if HAS_COMMAND else ""
    say(f"The environment has {_shown(overlay)}{removal}")
    return overlay.python


def _install(parts: Sequence[Part], python: str, base: Interpreter, code: Path, say: Say) -> None:
    for part in parts:
        say(f"Installing {part.name}")
        began = time.monotonic()
        install_part(part, python, base, str(code), say)
        say(f"Installed {part.name} in {time.monotonic() - began:.1f} s")


def _names(parts: Sequence[Part]) -> str:
    return " and ".join(part.name for part in parts)


def _shown(overlay: Overlay) -> str:
    return f"{overlay.size / 1e6:,.1f} MB in {overlay.path}"


def _make_overlay(overlay: Overlay, base: Interpreter) -> None:
    """Create a virtual environment that also sees every package of ``base``, including pip."""
    if base.path == sys.executable:
        import venv

        venv.EnvBuilder(with_pip=False, symlinks=True).create(overlay.path)
    else:
        command = [base.path, "-I", "-m", "venv", "--without-pip", "--symlinks", str(overlay.path)]
        run(command, "/", f"{base.path} cannot create a virtual environment")
    lines = [f"import site; site.addsitedir({parent!r})" for parent in base.parents]
    (overlay.site_packages / "_parent.pth").write_text("\n".join(lines) + "\n")


def _fingerprint(base: Interpreter, code: Path, parts: Sequence[Part]) -> str:
    """A hash of the interpreter, its installed distributions, and the parts to install."""
    digest = hashlib.sha256(f"{base.version}\0{base.prefix}\0".encode())
    for parent in base.parents:
        names = sorted(name for name in os.listdir(parent) if name.endswith(_DISTRIBUTIONS))
        digest.update("\0".join([parent, *names, ""]).encode("utf-8", "surrogateescape"))
    for part in parts:
        if part is REQUIREMENTS:
            digest.update("\n".join(content_of(code / "requirements.txt", code)).encode())
        else:
            digest.update(digest_of(code).encode())
    return digest.hexdigest()[:32]
