"""Converts a Jupyter notebook to a Python script, with nbconvert.

The script has the code cells in their order, and text cells as comments, but no outputs. Magics that only affect the
display are left out, ``%time`` and ``%%capture`` are replaced by their code, and everything else that needs IPython is
refused: a script that silently skips ``!pip install`` would fail later, or compute something else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import CloudtrainError, InvalidJob, InvalidSource
from cloudtrain.storage.atomic import replace_file

NOTEBOOK = ".ipynb"
LEFT_OUT = ("remove_cell", "remove-cell")
"""The tags of cells that are left out, as in nbconvert's documentation and Jupyter Book."""

_DISPLAY = {"autoreload", "config", "load_ext", "matplotlib", "pinfo", "pinfo2", "precision", "reload_ext"}
"""Line magics that do not affect the results of a script."""
_TIMED = {"time", "capture"}
"""Magics around code that a script can run without them."""
_PACKAGES = {"pip", "conda", "mamba", "uv"}
LONGEST_REASON = 200
"""Characters of a library's message, or of the name of a language, that a message shows."""
_LINE_END = re.compile("\r\n?|\n")
"""The line ends of Python source. `str.splitlines` also splits at other characters, which a string may contain."""
_MARK = "# Converted from {name} by cloudtrain: edit the notebook instead."


def convert_notebook(path: Path) -> Path:
    """Convert the notebook at ``path`` to a script next to it, and return the path of the script.

    A script of an earlier conversion is replaced.

    Raises:
        InvalidJob: nbconvert is not installed.
        InvalidSource: the file is not a notebook in Python, uses features that only a notebook has, or has the name
            of another script; or the script cannot be written.
    """
    if not path.is_file():
        raise InvalidSource(f"there is no notebook {path}", hint="Check the path.")
    script = path.with_suffix(".py")
    mark = _MARK.format(name=path.name)
    try:
        if script.exists() and not script.read_text(encoding="utf-8", errors="replace").startswith(mark):
            raise InvalidSource(
                f"{path} cannot be converted to {script.name}: there is such a file already",
                hint="Submit that script, or rename one of the two.",
            )
        text = f"{mark}\n{_to_script(path)}"
        replace_file(script, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise InvalidSource(f"cannot write {script}: {error.strerror}") from error
    return script


def _to_script(path: Path) -> str:
    try:
        import IPython  # noqa: F401 - nbconvert does not require it, but a conversion does
        import nbconvert  # noqa: F401
        import nbformat
    except ImportError as error:
        raise InvalidJob(
            f"--convert-notebook needs the package {error.name}", hint="pip install nbconvert ipython"
        ) from None
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError:
        raise
    except Exception as error:  # every version of nbformat has its own classes
        raise _not_a_notebook(path, error) from None
    try:
        return _convert(notebook, path)
    except CloudtrainError:
        raise
    except Exception as error:  # nbformat reads notebooks whose parts violate the format
        raise _not_a_notebook(path, error) from None


def _not_a_notebook(path: Path, error: Exception) -> InvalidSource:
    return InvalidSource(
        f"{path} is not a notebook that nbformat can read: {_short(error)}",
        hint="Open and save it in Jupyter.",
    )


def _short(text: object) -> str:
    return " ".join(str(text).split())[:LONGEST_REASON]


def _convert(notebook: Any, path: Path) -> str:
    from nbconvert import PythonExporter
    from traitlets.config import Config

    if (language := _language(notebook.metadata)).lower() != "python":
        raise InvalidSource(
            f"{path} is a notebook in {_short(language)}, not in Python",
            hint="Choose a kernel of Python in Jupyter, or submit a script.",
        )
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code" and not set(LEFT_OUT) & set(cell.metadata.get("tags") or ()):
            cell.source = _plain(cell.source, f"{path}, cell {number}")
    tags = {"enabled": True, "remove_cell_tags": list(LEFT_OUT)}
    text, _ = PythonExporter(config=Config(TagRemovePreprocessor=tags)).from_notebook_node(notebook)
    return str(text)


def _language(metadata: Mapping[str, Any]) -> str:
    """The language in the metadata of a notebook: that of its kernel, or else of its code."""
    kernel, info = metadata.get("kernelspec") or {}, metadata.get("language_info") or {}
    return str(kernel.get("language") or info.get("name") or "python")


def _plain(source: str, where: str) -> str:
    """The code of a cell without magics. Raises InvalidSource."""
    from IPython.core.inputtransformer2 import TransformerManager

    text = TransformerManager().transform_cell(source)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise InvalidSource(
            f"{where}, line {error.lineno}: {error.msg}", hint="Fix the syntax error in this cell."
        ) from None
    statements = {
        id(node.value): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and _is_magic(node.value)
    }
    for call in _magics(tree):
        if id(call) not in statements:
            raise _refused(call, where)
    lines = _LINE_END.split(text)
    for node in sorted(statements.values(), key=lambda node: -node.lineno):
        indent = " " * node.col_offset
        code = _LINE_END.split(_without_magic(node.value, where) or "pass")
        lines[node.lineno - 1 : node.end_lineno] = [indent + line for line in code]
    return "\n".join(lines)


def _is_magic(node: ast.AST) -> bool:
    """Whether a node is ``get_ipython().SOMETHING(...)``, to which IPython converts a magic or a shell command."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "get_ipython"
    )


def _magics(tree: ast.AST) -> Iterator[Any]:
    return (node for node in ast.walk(tree) if _is_magic(node))


def _without_magic(call: Any, where: str) -> str:
    """The code that replaces a magic in a script. Raises InvalidSource."""
    kind, arguments = _parts(call)
    name = arguments[0] if arguments else ""
    if kind == "run_line_magic" and name in _DISPLAY:
        return ""
    if kind == "run_line_magic" and name in _TIMED:
        return _plain(arguments[1], where)
    if kind == "run_cell_magic" and name in _TIMED:
        return _plain(arguments[2], where)
    raise _refused(call, where)


def _parts(call: Any) -> tuple[str, list[str]]:
    """The method of IPython that a magic calls, and its arguments."""
    return call.func.attr, [str(one.value) for one in call.args if isinstance(one, ast.Constant)]


def _refused(call: Any, where: str) -> InvalidSource:
    kind, arguments = _parts(call)
    name = arguments[0] if arguments else ""
    prefix = {"run_line_magic": "%", "run_cell_magic": "%%", "system": "!", "getoutput": "!"}.get(kind)
    shown = f"{prefix}{name}" if prefix else f"get_ipython().{kind}"
    words = " ".join(arguments[:2]).split()
    hint = (
        "Name the packages in requirements.txt, next to the notebook; and remove the line."
        if _PACKAGES & set(words[:3])
        else "Use subprocess.run in Python instead."
        if prefix == "!"
        else "Write it in plain Python."
    )
    return InvalidSource(
        f"{where}: {shown} works only in a notebook",
        hint=f"{hint} To leave the cell out, give it the tag {LEFT_OUT[0]}.",
    )
