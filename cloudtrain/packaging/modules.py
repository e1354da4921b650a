"""Reads the imports of Python files, and finds the files of the modules that they name. Runs nothing."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Container, Iterable, Iterator
from pathlib import PurePosixPath

from cloudtrain.errors import InvalidSource

_GUARDS = {"ImportError", "ModuleNotFoundError", "Exception"}


def _parse(source: bytes, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, name)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise InvalidSource(
            f"{name}{line}: {reason}", hint="Fix the error: the script imports this file and would fail."
        ) from error


def imports_of(source: bytes, file: str, *, optional: bool = False) -> Iterator[str]:
    """The absolute names of all modules, or names in modules, that a source file imports.

    Args:
        file: the name of the file, from the folder that absolute imports start in.
        optional: include the imports in a ``try`` that catches ImportError, and those for type checkers.

    Raises:
        InvalidSource: the file does not compile.
    """
    return _imports(_parse(source, file), file, optional)


def _imports(node: ast.AST, file: str, optional: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parent = list(PurePosixPath(file).parent.parts)
        base = parent[: len(parent) - node.level + 1] if node.level else []
        module = [*base, *([node.module] if node.module else [])]
        yield from (".".join([*module, alias.name]) for alias in node.names)
    else:
        for child in ast.iter_child_nodes(node) if optional else _always_run(node):
            yield from _imports(child, file, optional)


def _always_run(node: ast.AST) -> Iterable[ast.AST]:
    """The children of ``node``, except those whose imports are optional."""
    if isinstance(node, ast.Try) and any(_catches_import_error(handler) for handler in node.handlers):
        return [*node.orelse, *node.finalbody]
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return node.orelse
    return ast.iter_child_nodes(node)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _GUARDS) for kind in kinds)


def folder_of(name: str) -> str:
    """The folder of a file; "" if the file is at the top."""
    return name.rpartition("/")[0]


def files_of(root: str, module: str, files: Container[str], folders: Container[str]) -> Iterator[str]:
    """The files, or namespace packages, of the source that an import of ``module`` from ``root`` runs."""
    path = root
    for part in module.split("."):
        path = f"{path}/{part}" if path else part
        candidates = [name for name in (f"{path}.py", f"{path}/__init__.py") if name in files]
        if not candidates and path not in folders:
            return
        yield from candidates or [path]
