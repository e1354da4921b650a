"""Is there an entry point, and can it start? Asked before anything is submitted."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path

from cloudtrain.errors import InvalidSource, nearest
from cloudtrain.packaging._ignore import ALWAYS_OUT, IgnoreRules


def check_entry_point(source_dir: Path | None, entry_point: str) -> str:
    """The entry point as the job names it: its path in the archive, or a module of the package there.

    Args:
        source_dir: the directory that is packed, or None if ``entry_point`` alone is.
        entry_point: a file: relative to ``source_dir``, or absolute and in it. Without ``source_dir``
            relative to the working directory. Or a module, if ``source_dir`` is a package to install.

    Raises:
        InvalidSource: it is missing, no file, outside of ``source_dir``, left out of the archive by an
            ignore file, or Python that does not compile.
    """
    if source_dir is None:
        _check_file(Path(entry_point), entry_point)
        return Path(entry_point).name
    if not source_dir.is_dir():
        raise InvalidSource(f"source_dir {source_dir} is not a directory")
    if _is_module(source_dir, entry_point):
        return entry_point
    root = os.path.abspath(source_dir)
    path = os.path.normpath(os.path.join(root, entry_point))
    name = os.path.relpath(path, root)
    if name == os.pardir or name.startswith(os.pardir + os.sep):
        raise InvalidSource(
            f"entry_point {entry_point!r} is outside of source_dir {source_dir}",
            hint="Give it relative to source_dir, or name a source_dir that contains it.",
        )
    _check_file(Path(path), entry_point)
    if _is_left_out(os.path.realpath(root), name):
        raise InvalidSource(
            f"entry_point {entry_point!r} is left out of the archive by an ignore file",
            hint=f"Add the line !/{name} to .cloudtrainignore in source_dir.",
        )
    return name


def _is_module(source_dir: Path, entry_point: str) -> bool:
    packaged = any((source_dir / name).is_file() for name in ("pyproject.toml", "setup.py"))
    named = all(part.isidentifier() for part in entry_point.split("."))
    return packaged and named and not (source_dir / entry_point).exists()


def _check_file(path: Path, entry_point: str) -> None:
    if path.is_dir():
        raise InvalidSource(f"entry_point {entry_point!r} is a folder: {path}", hint="Name a file in it.")
    if not path.exists():
        beside = [file.name for file in path.parent.glob("*") if file.suffix in (".py", ".sh")]
        raise InvalidSource(
            f"there is no entry_point {entry_point!r}: no file {path}",
            hint=nearest(path.name, beside) if beside else "Check source_dir and entry_point.",
        )
    if not path.is_file():
        raise InvalidSource(f"entry_point {entry_point!r} is not a regular file: {path}")
    if path.suffix == ".py":
        _check_syntax(path)


def _check_syntax(path: Path) -> None:
    try:
        source = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise InvalidSource(f"cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        text = f": {error.text.strip()}" if error.text else ""
        raise InvalidSource(
            f"{where}: {error.msg}{text}",
            hint=f"Correct it; this is what Python {platform.python_version()} says.",
        ) from error
    except ValueError as error:  # a null byte, before Python 3.12
        raise InvalidSource(f"{path}: {error}", hint="Is it a Python file?") from error


def _is_left_out(root: str, name: str) -> bool:
    rules = IgnoreRules.around(root)
    path = root
    for part in name.split(os.sep):
        rules = rules.within(path)
        path = os.path.join(path, part)
        if part in ALWAYS_OUT or rules.leave_out(path, is_folder=os.path.isdir(path)):
            return True
    return False
