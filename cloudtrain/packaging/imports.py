"""Reads the imports of Python files: the files of the source that they name, and other modules. Runs nothing."""

from __future__ import annotations

import ast
import re
import sys
import tarfile
import warnings
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from cloudtrain._system.patterns import pattern
from cloudtrain.errors import InvalidSource, StorageError

_MODULES = {
    "beautifulsoup4": {"bs4"},
    "faiss-cpu": {"faiss"},
    "faiss-gpu": {"faiss"},
    "gitpython": {"git"},
    "hydra-core": {"hydra"},
    "msgpack-python": {"msgpack"},
    "opencv-python": {"cv2"},
    "opencv-python-headless": {"cv2"},
    "pillow": {"PIL"},
    "protobuf": {"google"},
    "pycocotools": {"pycocotools"},
    "pytorch-lightning": {"pytorch_lightning", "lightning_fabric"},
    "python-dateutil": {"dateutil"},
    "python-dotenv": {"dotenv"},
    "pyyaml": {"yaml"},
    "scikit-image": {"skimage"},
    "scikit-learn": {"sklearn"},
    "setuptools": {"setuptools", "pkg_resources"},
    "mxnet": {"mxnet", "numpy"},
    "tensorflow-cpu": {"tensorflow", "keras", "numpy"},
    "tensorflow": {"tensorflow", "keras", "numpy"},
}
"""The modules of well-known distributions whose names differ from these, or which always install others."""

BUNDLED = ("cloudtrain", "horovod")
"""The packages that every job has: cloudtrain, and its ``horovod`` where the real one is not installed."""

_NEEDS = {
    "cloudtrain.checkpoint.keras": ("keras", "numpy"),
    "cloudtrain.checkpoint.mxnet": ("mxnet", "numpy"),
    "cloudtrain.checkpoint.torch": ("torch",),
    "cloudtrain.distributed.keras": ("keras", "numpy", "tensorflow"),
    "cloudtrain.distributed.mxnet": ("mxnet", "numpy"),
    "cloudtrain.distributed.numpy": ("numpy",),
    "cloudtrain.distributed.tensorflow": ("numpy", "tensorflow"),
    "cloudtrain.distributed.torch": ("torch",),
    "cloudtrain.optimizers.keras": ("keras",),
    "cloudtrain.optimizers.torch": ("torch",),
    "horovod.keras": ("keras", "numpy", "tensorflow"),
    "horovod.mxnet": ("mxnet", "numpy"),
    "horovod.tensorflow": ("numpy", "tensorflow"),
    "horovod.torch": ("torch",),
}
"""The modules that an import of a bundled module needs."""

_REQUIREMENT = pattern(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EGG = pattern(r"#egg=([A-Za-z0-9._-]+)")
_INCLUDE = pattern(r"\s*(?:-r|--requirement)[ =]?\s*(\S+)")


def read_sources(archive: Path) -> dict[str, bytes]:
    """The Python and text files of a source archive and its ``pyproject.toml``, by name.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        with tarfile.open(archive) as tar:
            return {
                member.name: file.read()
                for member in tar
                if member.name.endswith((".py", ".txt", "pyproject.toml"))
                and (file := tar.extractfile(member))
            }
    except (OSError, tarfile.TarError) as error:
        raise StorageError(f"cannot read the source archive {archive}: {error}") from error


def outside_imports(
    files: Mapping[str, bytes],
    entry_point: str,
    bundled: Collection[str] = BUNDLED,
    launcher: Collection[str] = (),
) -> list[str]:
    """The modules that a script, and the modules of its source that it imports, import from elsewhere.

    The result excludes the standard library, the source itself, requirements from ``requirements.txt``, and optional
    imports: those in a ``try`` that catches ImportError, and those for type checkers. It also excludes bundled
    packages, but includes the frameworks that they import.

    Args:
        files: the source, as returned by `read_sources`.
        entry_point: the name of the script in it.
        bundled: the packages that the job has from cloudtrain.
        launcher: the modules that the job's launcher imports; treated like imports of the script.

    Returns:
        Sorted top-level names. The list is empty if the entry point is not a Python file.

    Raises:
        InvalidSource: an imported module does not compile.

    >>> outside_imports({"train.py": b"import os, torch, helpers", "helpers.py": b"import yaml"}, "train.py")
    ['torch', 'yaml']
    >>> outside_imports({"train.py": b"import horovod.tensorflow as hvd"}, "train.py")
    ['numpy', 'tensorflow']
    """
    found: set[str] = set(launcher)
    waiting, seen = [entry_point], {entry_point}
    roots = {
        "",
        folder_of(entry_point),
    }  # the top of the archive, and the script's folder, which Python searches first
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    while waiting:
        name = waiting.pop()
        if name not in files or not name.endswith(".py"):
            continue
        for module in imports_of(files[name], name):
            own = {file for root in roots for file in files_of(root, module, files, folders)}
            if not own:
                top = module.partition(".")[0]
                found |= _needs_of(module) | ({top} - set(bundled))
            waiting += own - seen
            seen |= own
    return sorted(found - sys.stdlib_module_names - {"__main__"} - _required(files, "requirements.txt"))


def _needs_of(module: str) -> set[str]:
    """The modules that an import of ``module``, if it is from cloudtrain or Horovod, needs."""
    return set(_NEEDS.get(".".join(module.split(".")[:3]), _NEEDS.get(".".join(module.split(".")[:2]), ())))


def _required(files: Mapping[str, bytes], name: str) -> set[str]:
    """The modules that a requirements file installs, judging by the names of the requirements."""
    modules: set[str] = set()
    for line in files.get(name, b"").decode("utf-8", "replace").splitlines():
        if include := _INCLUDE.match(line):
            path = str(PurePosixPath(name).parent / include[1])
            modules |= _required({key: value for key, value in files.items() if key != name}, path)
        elif found := _EGG.search(line) or _REQUIREMENT.match(line):
            modules |= _modules_of(found[1])
    return modules


def _modules_of(distribution: str) -> set[str]:
    import importlib.metadata  # slow to import, and most scripts have no requirements.txt next to them

    normal = re.sub(r"[-_.]+", "-", distribution).lower()
    modules = {normal.replace("-", "_"), distribution, *_MODULES.get(normal, ())}
    try:
        installed = importlib.metadata.distribution(normal)
    except importlib.metadata.PackageNotFoundError:
        return modules
    tops = {file.parts[0].removesuffix(".py") for file in installed.files or () if file.suffix == ".py"}
    return modules | tops


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
        file: the name of the file, relative to the folder in which absolute imports start.
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
