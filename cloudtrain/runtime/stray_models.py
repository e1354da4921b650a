"""Finds models that a script wrote into its working folder, which is not uploaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.runtime.skipped import NAMED, shown

SUFFIXES = (
    ".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".keras", ".joblib", ".pkl", ".onnx", ".params", ".ubj",
)  # fmt: skip
SAVED_MODEL = "saved_model.pb"
"""TensorFlow's SavedModel is a folder with this file."""

LIMIT = 20_000
"""Files and folders to look at."""

_NO_MODELS = {"__pycache__", "node_modules", "site-packages"}


def find_stray_models(folder: Path, since: float) -> list[str]:
    """Some paths below ``folder`` that look like models and were written after ``since``, seconds since the epoch."""
    found = []
    for path in _written(folder, since):
        found.append(shown(os.path.relpath(path, folder)))
        if len(found) > NAMED:
            break
    return sorted(found)


def _written(folder: Path, since: float) -> Iterator[str]:
    looked_at = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NO_MODELS)
        looked_at += len(folders) + len(files)
        if looked_at > LIMIT:
            return
        if SAVED_MODEL in files and _is_new(os.path.join(parent, SAVED_MODEL), since):
            folders.clear()
            yield parent
            continue
        for name in sorted(files):
            path = os.path.join(parent, name)
            if name.endswith(SUFFIXES) and _is_new(path, since):
                yield path


def _is_new(path: str, since: float) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return state.st_mtime >= since and not os.path.islink(path)
