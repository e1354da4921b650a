"""Checks, before a job is submitted, that its entry point exists and can be run."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path, PurePath

from cloudtrain._system.paths import relative
from cloudtrain.contract.source import START_BYTES, is_program
from cloudtrain.errors import InvalidSource, nearest
from cloudtrain.packaging.ignore import ALWAYS_OUT, IgnoreRules

_MAIN = "__main__.py"
_NAME_A_SCRIPT = (
    "Name a Python file (.py), a shell script (.sh), or a file that begins with #! and its interpreter."
)
_JOB_FILE = "If it is a job file, submit it by itself: cloudtrain submit FILE. Its field entry_point names the script."
_ADVICE = {
    ".ipynb": (
        "a notebook",
        "Let cloudtrain convert it: cloudtrain submit NOTEBOOK --convert-notebook. Or convert it yourself: "
        "jupyter nbconvert --to script NOTEBOOK.",
    ),
    ".yaml": ("a YAML file", _JOB_FILE),
    ".yml": ("a YAML file", _JOB_FILE),
    ".json": ("a JSON file", _JOB_FILE),
    ".md": ("a text", _NAME_A_SCRIPT),
    ".rst": ("a text", _NAME_A_SCRIPT),
    ".txt": ("a text", _NAME_A_SCRIPT),
}
"""The description of a file that cannot be run, and what to do, by its suffix."""


def locate(source_dir: str | None, entry_point: str) -> tuple[str | None, str]:
    """The source to pack, and the entry point in it, from the arguments that ``python`` would take.

    An entry point is a script, a folder with a ``__main__.py``, or a module of the working directory (``python -m``).
    """
    if source_dir is None:
        if os.path.isfile(os.path.join(entry_point, _MAIN)):
            return entry_point, _MAIN
        if not os.path.exists(entry_point) and _module_file(Path(), entry_point):
            return os.curdir, entry_point
    return source_dir, entry_point


def check_entry_point(source_dir: Path | None, entry_point: str) -> str:
    """The entry point in the archive: the path of a file, or the name of a module.

    Args:
        source_dir: the directory to pack, or None if only ``entry_point`` is packed.
        entry_point: a file in ``source_dir``: its absolute path, or its path relative to ``source_dir`` or, if that
            does not exist, to the working directory. Without ``source_dir``, a path relative to the working
            directory. Or a module, if ``source_dir`` is a package to install.

    Raises:
        InvalidSource: the entry point does not exist, is not a file, is not a program, is outside ``source_dir``, is
            excluded by an ignore file, or does not compile.
    """
    if source_dir is None:
        _check_file(Path(entry_point), entry_point)
        return Path(entry_point).name
    if not source_dir.is_dir():
        raise InvalidSource(f"source_dir {source_dir} is not a directory")
    module = None if (source_dir / entry_point).exists() else _module_file(source_dir, entry_point)
    if module is None and _is_module(source_dir, entry_point):
        return entry_point
    root = os.path.abspath(source_dir)
    path = os.path.normpath(os.path.join(root, module or entry_point))
    if os.path.isfile(os.path.join(path, _MAIN)):
        path = os.path.join(path, _MAIN)
    if not os.path.exists(path) and _is_beside_files(entry_point, root):
        path = os.path.abspath(entry_point)
    name = relative(path, root)
    if name == os.pardir or name.startswith(os.pardir + os.sep):
        raise InvalidSource(
            f"entry_point {entry_point!r} is outside source_dir {source_dir}",
            hint="Use a path relative to source_dir, or a source_dir that contains the script.",
        )
    _check_file(Path(path), entry_point)
    if _is_left_out(os.path.realpath(root), name):
        raise InvalidSource(
            f"entry_point {entry_point!r} is excluded from the archive by an ignore file",
            hint=f"Add the line !/{PurePath(name).as_posix()} to .cloudtrainignore in source_dir.",
        )
    return entry_point if module else PurePath(name).as_posix()


def _module_file(folder: Path, name: str) -> str | None:
    """The file that ``python -m NAME`` runs in ``folder``, relative to it; None if there is none."""
    parts = name.split(".")
    if all(part.isidentifier() for part in parts):
        path = os.path.join(*parts)
        for file in (f"{path}.py", os.path.join(path, _MAIN)):
            if (folder / file).is_file():
                return file
    return None


def _is_beside_files(entry_point: str, root: str) -> bool:
    """Whether a path is relative to the working directory: it is a file, or a misspelt one in a folder of ``root``."""
    folder = os.path.dirname(os.path.abspath(entry_point))
    return os.path.isfile(entry_point) or (
        os.path.isdir(folder) and f"{folder}{os.sep}".startswith(f"{root}{os.sep}")
    )


def _is_module(source_dir: Path, entry_point: str) -> bool:
    packaged = any((source_dir / name).is_file() for name in ("pyproject.toml", "setup.py"))
    named = all(part.isidentifier() for part in entry_point.split("."))
    return packaged and named and not (source_dir / entry_point).exists()


def _check_file(path: Path, entry_point: str) -> None:
    if path.is_dir():
        raise InvalidSource(f"entry_point {entry_point!r} is a folder: {path}", hint="Name a script in it.")
    if not path.exists():
        scripts = [file.name for file in path.parent.glob("*") if file.suffix in (".py", ".sh")]
        raise InvalidSource(
            f"entry_point {entry_point!r} does not exist: no file {path}",
            hint=nearest(path.name, scripts) if scripts else "Check source_dir and entry_point.",
        )
    if not path.is_file():
        raise InvalidSource(f"entry_point {entry_point!r} is not a regular file: {path}")
    if path.suffix == ".py":
        _check_syntax(path)
    else:
        _check_program(path, entry_point)


def _check_program(path: Path, entry_point: str) -> None:
    """Reject a file that would be run by a shell although it is not a shell script."""
    try:
        with path.open("rb") as file:
            start = file.read(START_BYTES)
    except OSError as error:
        raise InvalidSource(f"cannot read {path}: {error.strerror}") from error
    if is_program(path.name, start):
        return
    what, hint = _ADVICE.get(path.suffix.lower(), ("neither a Python file nor a program", _NAME_A_SCRIPT))
    raise InvalidSource(f"entry_point {entry_point!r} cannot be run: it is {what}", hint=hint)


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
            hint=f"Fix the syntax error, as reported by Python {platform.python_version()}.",
        ) from error
    except ValueError as error:  # before Python 3.12: a null byte
        raise InvalidSource(f"{path}: {error}", hint="Check that this is a Python file.") from error


def _is_left_out(root: str, name: str) -> bool:
    rules = IgnoreRules.around(root)
    path = root
    for part in name.split(os.sep):
        rules = rules.within(path)
        path = os.path.join(path, part)
        if part in ALWAYS_OUT or rules.leave_out(path, is_folder=os.path.isdir(path)):
            return True
    return False
