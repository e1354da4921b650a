#!/usr/bin/env python3
"""Import what cloudtrain imports of an extra's packages. Runs in an environment with the extra, for extra_sizes.

  extra_imports.py EXTRA     raises the ImportError of the first import that fails

Of an extra whose packages cloudtrain does not import itself, such as ``site``, the top modules are imported.
``s3server`` is a program, and has none.
"""

from __future__ import annotations

import ast
import importlib
import sys
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cloudtrain


def added(distribution: str, extra: str) -> set[str]:
    """The names that ``distribution[extra]`` requires and ``distribution`` does not, with the extras of these."""
    names = set()
    for needed in map(Requirement, requires(distribution) or []):
        marker = needed.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            names.add(canonicalize_name(needed.name))
            names.update(*(added(needed.name, further) for further in needed.extras))
    return names


def imports_of(modules: set[str]) -> list[str]:
    """The statements of cloudtrain that import from ``modules``, which are names without dots.

    Without those of which another one is tried: each version of a package has one of them.
    """
    found = set()
    for path in Path(cloudtrain.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        either = alternatives(tree)
        for node in ast.walk(tree):
            if node in either:
                continue
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            if any(name.split(".")[0] in modules for name in names):
                found.add(ast.unparse(node))
    return sorted(found)


def alternatives(tree: ast.AST) -> set[ast.AST]:
    """The nodes in a ``try`` whose handler for ImportError imports something else, and in that handler."""
    return {
        inner
        for attempt in ast.walk(tree)
        if isinstance(attempt, ast.Try)
        for caught in attempt.handlers
        if caught.type and "ImportError" in ast.unparse(caught.type)
        if any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(caught))
        for part in (*attempt.body, caught)
        for inner in ast.walk(part)
    }


def main() -> None:
    needed = added("cloudtrain", sys.argv[1])
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if needed.intersection(map(canonicalize_name, distributions)) and not module.startswith("_")
    }
    modules.update(name for name in needed if find_spec(name))  # also of a distribution that lists no files
    for module in sorted(modules):
        importlib.import_module(module)
    for statement in imports_of(modules):
        exec(statement, {})


if __name__ == "__main__":
    main()
