"""Finds the names of the SageMaker SDK in notebooks that train, and looks them up in `cloudtrain.sagemaker`."""

from __future__ import annotations

import ast
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from cells import code_cells

from cloudtrain.errors import CloudtrainError

WORKS, REFUSED, ABSENT = "works", "refused with a hint", "absent"


@dataclass(frozen=True)
class Use:
    """A name of the SDK in a notebook, and whether the notebook imports it or only uses it as an attribute."""

    name: str
    is_import: bool


def training_notebooks(checkout: Path) -> Iterator[tuple[Path, list[str]]]:
    """The notebooks with a call of `.fit(`, and their code cells."""
    for path in sorted(checkout.rglob("*.ipynb")):
        try:
            cells = code_cells(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError):
            continue
        if any(".fit(" in cell for cell in cells):
            yield path, cells


def uses(cells: list[str]) -> set[Use]:
    """The names of the SDK: `sagemaker.inputs.TrainingInput`."""
    finder = _Finder()
    for cell in cells:
        finder.visit(_parse(cell))
    return finder.found


def _parse(cell: str) -> ast.Module:
    """The cell without magics; if it is not Python 3, only its import lines."""
    lines = cell.splitlines()
    for kept in (
        [line for line in lines if not line.lstrip().startswith(("%", "!"))],
        [line.strip() for line in lines if line.lstrip().startswith(("import ", "from "))],
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse("\n".join(kept))
        except SyntaxError:
            continue
    return ast.Module([], [])


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: set[Use] = set()
        self.modules: dict[str, str] = {}
        """The modules of the SDK by their names in the notebook."""

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            if one.name.split(".")[0] == "sagemaker":
                self.found.add(Use(one.name, True))
                self.modules[one.asname or "sagemaker"] = one.name if one.asname else "sagemaker"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if (node.module or "").split(".")[0] != "sagemaker" or node.level:
            return
        for one in node.names:
            self.found.add(Use(f"{node.module}.{one.name}", True))
            if one.name.islower():
                self.modules[one.asname or one.name] = f"{node.module}.{one.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self.modules:
            self.found.add(Use(".".join([self.modules[inner.id], *reversed(names)]), False))
        else:
            self.visit(inner)


def outcome(name: str) -> str:
    """The outcome for a name of the SDK in `cloudtrain.sagemaker`. Attributes of functions are not looked up."""
    found: object = None
    path = "cloudtrain"
    for part in name.split("."):
        path = f"{path}.{part}"
        try:
            found = import_module(path) if found is None else getattr(found, part)
        except CloudtrainError:
            return REFUSED
        except AttributeError:
            try:
                found = import_module(path)
            except ImportError:
                return ABSENT
        if isinstance(found, type) and found.__module__.startswith("sagemaker"):
            return REFUSED
        if not isinstance(found, (ModuleType, type)):
            break
    return WORKS


def report(checkout: Path, *, each: bool = False) -> Iterator[str]:
    """Lines: how many notebooks resolve, and the other names by the number of notebooks that have them."""
    results: dict[Use, str] = {}
    total = resolved = complete = 0
    missing: Counter[tuple[str, str]] = Counter()
    for path, cells in training_notebooks(checkout):
        used = uses(cells)
        for use in used:
            results.setdefault(use, outcome(use.name))
        total += 1
        left = {use for use in used if results[use] != WORKS}
        resolved += not any(results[use] == ABSENT for use in used if use.is_import)
        complete += not any(use.is_import for use in left)
        missing.update((results[use], use.name) for use in left)
        if each and left:
            yield f"{path.relative_to(checkout)}: {', '.join(sorted(use.name for use in left))}"
    yield f"{total} notebooks call .fit("
    yield f"{resolved} resolve every import"
    yield f"{complete} import nothing that is refused when it is used"
    for (result, name), count in missing.most_common():
        yield f"{count:4} {result}: {name}"
