"""The program of ``cloudtrain run``, as the ranks start it: a script or a module of a Python, or any other program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.source import START_BYTES, is_executable
from cloudtrain.errors import InvalidJob

OLDEST = (3, 9)
"""The oldest Python that can run cloudtrain's code in a rank."""

_PYTHON = pattern(r"python(\d+(\.\d+)?)?")
_PLAIN = pattern(r"-[bBdOqRuvx]+")
"""Options of Python without a value that affect neither PYTHONPATH nor the kind of program."""


@dataclass(frozen=True)
class RankProgram:
    """How to start a rank."""

    python: str
    """The interpreter of `cloudtrain.runtime.rank`."""
    options: list[str]
    """Its options."""
    arguments: list[str]
    """The arguments of `cloudtrain.runtime.rank`: ``train.py ...``, ``-m module ...`` or ``-- program ...``."""


def rank_program(command: list[str]) -> RankProgram:
    """How ranks start ``command``, given as the user typed it. Raises InvalidJob if there is no such program."""
    name = command[0]
    if not shutil.which(name) and _is_script(name):
        command = ["python" if shutil.which("python") else sys.executable, *command]
    path = shutil.which(command[0])
    if path is None:
        raise InvalidJob(f"there is no program {name!r}", hint=_advice(name))
    found = _of_python(path, command[1:]) if _PYTHON.fullmatch(os.path.basename(path)) else None
    return found or RankProgram(sys.executable, [], ["--", path, *command[1:]])


def _is_script(name: str) -> bool:
    return name.endswith(".py") and os.path.isfile(name)


def _advice(name: str) -> str:
    if not os.path.isfile(name):
        return "Name the program after the flags: cloudtrain run -np 4 python train.py"
    with open(name, "rb") as file:
        runs_itself = is_executable(file.read(START_BYTES))
    if runs_itself and os.access(name, os.X_OK):
        return f"Write ./{name}."
    return f"Make it executable: chmod +x {name}" if runs_itself else f"Name its interpreter: sh {name}"


def _of_python(path: str, arguments: list[str]) -> RankProgram | None:
    """A script or a module, which the rank runs in its own process; None for any other use of Python."""
    rest, options = list(arguments), list[str]()
    while rest:
        word = rest[0]
        if word in ("-W", "-X") and rest[1:]:
            options += rest[:2]
            del rest[:2]
        elif _PLAIN.fullmatch(word) or re.fullmatch(r"-[WX].+", word):
            options.append(rest.pop(0))
        else:
            break
    if rest[:1] == ["-m"]:
        if not rest[1:]:
            raise InvalidJob("python -m needs the name of a module", hint="Example: python -m package.train")
    elif not rest or rest[0].startswith("-") or os.path.isdir(rest[0]):
        return None
    elif not os.path.isfile(rest[0]):
        raise InvalidJob(
            f"there is no file {rest[0]!r} in {os.getcwd()}", hint="Check the path of the script."
        )
    elif not _is_source(rest[0]):
        return None
    python = os.path.abspath(path)
    return RankProgram(python, options, rest) if _is_this(python) or _is_new_enough(python) else None


def _is_source(path: str) -> bool:
    with open(path, "rb") as file:
        return not file.read(4).startswith((b"PK\3\4", b"\x7fELF"))


def _is_this(python: str) -> bool:
    """Whether ``python`` is the interpreter of this process, under any of its names."""
    if python == sys.executable:
        return True
    same_folder = os.path.dirname(python) == os.path.dirname(sys.executable)
    return same_folder and os.path.realpath(python) == os.path.realpath(sys.executable)


def _is_new_enough(python: str) -> bool:
    check = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.run([python, "-c", check], cwd="/", stdin=subprocess.DEVNULL).returncode == 0


def library_for(python: str) -> str:
    """The folder that ``python`` imports cloudtrain from: this one, or for another interpreter the bundled runtime.

    Raises StorageError.
    """
    from cloudtrain.runtime.run_folder import LIBRARY

    if _is_this(python):
        return LIBRARY
    from cloudtrain.packaging import pack_runtime
    from cloudtrain.runtime.zipapp_main import unpack
    from cloudtrain.storage import state_home

    cache = state_home() / "runtime"
    return unpack(str(pack_runtime(cache).path), str(cache))
