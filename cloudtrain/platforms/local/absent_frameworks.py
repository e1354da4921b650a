"""Warns at submission if a script needs a framework that this Python does not have. Imports no framework."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cloudtrain.errors import InvalidSource, StorageError

if TYPE_CHECKING:
    from cloudtrain.spec import TrainingJob

DISTRIBUTIONS = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "jax": "jax",
    "keras": "keras",
    "lightning": "lightning",
    "mxnet": "mxnet",
    "pytorch_lightning": "pytorch-lightning",
    "sklearn": "scikit-learn",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "transformers": "transformers",
    "xgboost": "xgboost",
}
"""The package of each framework, by the name of its module."""
LARGEST = 1 << 20
"""The limit in bytes: a larger archive is not read, because that would delay the submission."""

_INSTALLS = {"pyproject.toml", "setup.py"}
_MENTION = re.compile(rf"\b(?:{'|'.join(DISTRIBUTIONS)})\b".encode())


def has_module(name: str) -> bool:
    """Whether this Python finds a top-level module."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules


def absent_frameworks(
    files: Mapping[str, bytes], entry_point: str, has: Callable[[str], bool] = has_module
) -> list[str]:
    """The frameworks that a script needs, but that this Python lacks and the script's source does not install.

    Args:
        files: the source, as returned by `cloudtrain.packaging.imports.read_sources`.

    >>> absent_frameworks({"train.py": b"import torch"}, "train.py", lambda name: False)
    ['torch']
    """
    mentioned = {name.decode() for text in files.values() for name in _MENTION.findall(text)}
    if "keras" in mentioned:
        mentioned.add("tensorflow")  # cloudtrain.distributed.keras and horovod.keras need it
    absent = {name for name in mentioned if not has(name)}
    if not absent or _INSTALLS.intersection(files):
        return []
    from cloudtrain.packaging.imports import outside_imports

    try:
        return [name for name in outside_imports(files, entry_point) if name in absent]
    except InvalidSource:  # the script will fail with the same error
        return []


def framework_warnings(job: TrainingJob) -> list[str]:
    """One sentence about the frameworks that a resolved job's script needs and will not find, if there are any."""
    if job.platform_options.get("python") != sys.executable or "PYTHONPATH" in job.environment:
        return []
    if job.source is None or job.entry_point is None or not job.entry_point.endswith(".py"):
        return []
    from cloudtrain.packaging.cache import cached_archive
    from cloudtrain.packaging.imports import read_sources

    archive = cached_archive(job.source.sha256)
    try:
        files = read_sources(archive) if archive.stat().st_size <= LARGEST else {}
    except (OSError, StorageError):
        return []
    absent = absent_frameworks(files, job.entry_point)
    if not absent:
        return []
    packages = " ".join(DISTRIBUTIONS[name] for name in absent)
    them = "them" if len(absent) > 1 else "it"
    return [
        f"{job.entry_point} needs {', '.join(absent)}, which {sys.executable} does not have: install {them} "
        f"({sys.executable} -m pip install {packages}), or name {them} in the source's requirements.txt"
    ]
