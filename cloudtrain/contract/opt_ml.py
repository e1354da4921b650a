"""Finds paths below ``/opt/ml`` in a source, for machines on which a job does not have that folder."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cloudtrain._system.patterns import pattern
from cloudtrain.contract.failure import FailureReport
from cloudtrain.contract.paths import DEFAULT_BASE

SUFFIXES = (".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")
"""The files that are searched."""
LARGEST = 1 << 20
"""Larger files, in bytes, are data."""
SHOWN = 3
LAST_LINES = 5
"""The lines at the end of a failed script's output that may name its reason."""

_PATH = pattern(r"(?<![\w.-])/opt/ml(?![\w-])[\w./-]*")
_DEFAULT_IN_SHELL = pattern(r"\$\{(?:SM|SAGEMAKER)_\w+:?-[^}]*\}")
_RUNS_COMMANDS = {"system", "popen", "Popen", "run", "call", "check_call", "check_output", "getoutput"}
_INSTEAD = {
    "model": "SM_MODEL_DIR",
    "output/data": "SM_OUTPUT_DATA_DIR",
    "output": "SM_OUTPUT_DIR",
    "input/config": "SM_INPUT_CONFIG_DIR",
    "input": "SM_INPUT_DIR",
    "code": "SM_SOURCE_DIR",
    "checkpoints": "SAGEMAKER_BASE_DIR",
}
"""The variable for each folder. The first one that matches is the most specific."""


@dataclass(frozen=True)
class Use:
    """A line that names ``path``, which is ``/opt/ml`` or below it."""

    file: str
    line: int
    path: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} uses {self.path}"


def find_uses(files: Iterable[tuple[str, bytes]]) -> list[Use]:
    """The uses in the files of a source, given by name and content. Comments and docstrings do not count.

    A path that is only the default for a variable of the contract does not count either, because the variable is set.

    >>> find_uses([("train.py", b"import os\\nmodel = os.environ.get('SM_MODEL_DIR', '/opt/ml/model')\\n")])
    []
    >>> find_uses([("train.py", b"import torch\\ntorch.save(model, '/opt/ml/model/model.pt')\\n")])
    [Use(file='train.py', line=2, path='/opt/ml/model/model.pt')]
    """
    return [
        Use(name, line, path)
        for name, content in sorted(files)
        if name.endswith(SUFFIXES) and len(content) <= LARGEST and DEFAULT_BASE.encode() in content
        for line, path in sorted(_uses_in(name, content.decode("utf-8", "replace")))
    ]


def source_texts(code: Path) -> Iterator[tuple[str, bytes]]:
    """The files in the folder of a source that `find_uses` searches."""
    for path in code.rglob("*"):
        if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size <= LARGEST:
            yield path.relative_to(code).as_posix(), path.read_bytes()


def show_uses(uses: list[Use]) -> str:
    """The first uses, in one line."""
    rest = len(uses) - SHOWN
    return ", ".join(map(str, uses[:SHOWN])) + (f", and {rest} more" if rest > 0 else "")


def advice(path: str) -> str:
    """The advice for a script that uses ``path``."""
    return f"Use the variable {variable_for(path)} instead, or run the job with --platform container."


def variable_for(path: str) -> str:
    """The variable of the contract that contains ``path``, or the beginning of it.

    >>> variable_for("/opt/ml/model/model.pt"), variable_for("/opt/ml/input/data/train/x.csv"), variable_for("/opt/ml")
    ('SM_MODEL_DIR', 'SM_CHANNEL_TRAIN', 'SM_MODEL_DIR')
    """
    below = PurePosixPath(path).relative_to(DEFAULT_BASE)
    if below.parts[:2] == ("input", "data") and len(below.parts) > 2:
        return f"SM_CHANNEL_{below.parts[2].upper()}"
    return next(
        (name for folder, name in _INSTEAD.items() if f"{below}/".startswith(f"{folder}/")), "SM_MODEL_DIR"
    )


def with_hint(report: FailureReport, reason: str) -> FailureReport:
    """``report`` with a hint if the script failed because of a path below ``/opt/ml``.

    Args:
        reason: why the job does not have that folder.
    """
    texts = [report.message, *(report.log_tail[-LAST_LINES:] if report.exception_type is None else ())]
    found = next((match for text in texts if (match := _PATH.search(text))), None)
    if not found:
        return report
    return replace(
        report, hint=f"Jobs on this machine do not have {DEFAULT_BASE}: {reason}. {advice(found[0])}"
    )


def _uses_in(name: str, text: str) -> Iterator[tuple[int, str]]:
    if name.endswith(".py"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield from _uses_below(ast.parse(text), in_command=False)
            return
        except (SyntaxError, ValueError, RecursionError):
            pass  # Python 2
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith(("#", "//")):
            yield from ((number, found) for found in _PATH.findall(_DEFAULT_IN_SHELL.sub("", line)))


def _uses_below(node: ast.AST, *, in_command: bool) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and (in_command or " " not in node.value.strip()):
            yield from ((node.lineno, found) for found in _PATH.findall(node.value))
        return
    if _is_default(node):
        return
    if isinstance(node, ast.Call):
        in_command = _name(node.func) in _RUNS_COMMANDS
    for child in ast.iter_child_nodes(node):
        yield from _uses_below(child, in_command=in_command)


def _is_default(node: ast.AST) -> bool:
    """Whether paths in ``node`` are only used if a variable of the contract is not set."""
    chooses = isinstance(node, (ast.IfExp, ast.BoolOp)) or (
        isinstance(node, ast.Call) and _name(node.func) in ("get", "getenv", "setdefault")
    )
    return chooses and any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and part.value.startswith(("SM_", "SAGEMAKER_"))
        for part in ast.walk(node)
    )


def _name(function: ast.expr) -> str:
    """The last part of a function's name."""
    return getattr(function, "attr", getattr(function, "id", ""))
