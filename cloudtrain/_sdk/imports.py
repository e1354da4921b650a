"""Changes the imports of the SageMaker SDK in scripts and notebooks to those of `cloudtrain.sagemaker`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from cloudtrain.errors import InvalidSource

NOTEBOOK = ".ipynb"
_MODULE = r"[\w.]+(?:[ \t]+as[ \t]+\w+)?"
_IMPORT = re.compile(rf"^([ \t]*)import[ \t]+({_MODULE}(?:[ \t]*,[ \t]*{_MODULE})*)")
_FROM = re.compile(r"^([ \t]*)from[ \t]+sagemaker(\.[\w.]+)?[ \t]+import\b")


def change_imports(source: str) -> str:
    """``source`` with the import lines of the SageMaker SDK changed; every other line stays."""
    return "".join(_changed(line) for line in source.splitlines(keepends=True))


class Change(NamedTuple):
    """The text of a file with changed imports, and each line that changed, before and after."""

    text: str
    lines: list[tuple[str, str]]


def change_file(path: Path) -> Change:
    """Change the imports of a script or notebook. Writes nothing.

    Raises:
        InvalidSource: the file cannot be read, or is not a notebook though its name ends with ``.ipynb``.
    """
    try:
        text = path.read_bytes().decode("utf-8")  # keeps line endings
    except (OSError, UnicodeError) as error:
        raise InvalidSource(f"{path} cannot be read: {error}") from error
    if path.suffix.lower() != NOTEBOOK:
        after = change_imports(text)
        return Change(after, _differences(text, after))
    try:
        notebook = json.loads(text)
        lines = [
            line for cell in notebook["cells"] if cell["cell_type"] == "code" for line in _change_cell(cell)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSource(f"{path} is not a notebook of format 4: {error!r}") from error
    if not lines:
        return Change(text, [])
    return Change(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", lines)  # as Jupyter writes it


def _change_cell(cell: dict[str, Any]) -> list[tuple[str, str]]:
    before = "".join(cell["source"])
    if before.lstrip().startswith("%%"):  # another program's text, such as a file to write
        return []
    after = change_imports(before)
    if after != before:
        cell["source"] = after.splitlines(keepends=True) if isinstance(cell["source"], list) else after
    return _differences(before, after)


def _differences(before: str, after: str) -> list[tuple[str, str]]:
    return [
        (old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=False) if old != new
    ]


def _changed(line: str) -> str:
    found = _IMPORT.match(line)
    if found is None:
        return _FROM.sub(r"\1from cloudtrain.sagemaker\2 import", line)
    names = [name.strip() for name in found[2].split(",")]
    if not any(re.match(r"sagemaker\b", name) for name in names):
        return line
    statements = [_statement(name) for name in names]
    return found[1] + "; ".join(statements) + line[found.end() :]


def _statement(name: str) -> str:
    """The import of one module, which binds the same name."""
    if name == "sagemaker" or name.startswith("sagemaker "):
        return f"from cloudtrain import {name}"
    if not name.startswith("sagemaker."):
        return f"import {name}"
    return f"import cloudtrain.{name}" + ("" if " as " in name else "; from cloudtrain import sagemaker")
