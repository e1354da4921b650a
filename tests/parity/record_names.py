"""Records the public names of the SageMaker SDK's modules, by module: cloudtrain/sagemaker/names.txt.

    python tests/parity/record_names.py SAGEMAKER > cloudtrain/sagemaker/names.txt

``SAGEMAKER`` is the folder of the SDK, version 2. Nothing is imported. Each line is a module with the names that it
defines.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def main(folder: Path) -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        *outer, name = path.relative_to(folder).with_suffix("").parts
        module = ".".join(outer if name == "__init__" else [*outer, name])
        if not module.startswith("_") and "._" not in module:
            for level in range(len(outer)):  # some packages have no __init__.py
                found.setdefault(".".join(outer[: level + 1]), set())
            found.setdefault(module, set()).update(_names(ast.parse(path.read_text())))
    for module in sorted(found):
        print(module or ".", *sorted(found[module] - {"logger"}))


def _names(tree: ast.Module | ast.If | ast.Try) -> Iterator[str]:
    for node in tree.body:
        yield from (name for name in _defined(node) if not name.startswith("_"))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.Import):
        yield from (alias.asname for alias in node.names if alias.asname and alias.name != alias.asname)
    elif isinstance(node, (ast.If, ast.Try)):
        yield from _names(node)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
