"""Finds models that a script wrote into its working folder, which is not uploaded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.runtime.outputs.unsupported_outputs import NAMED, shown

SUFFIXES = (
    ".pt", ".pth", ".pt.tar", ".pth.tar", ".ckpt", ".safetensors", ".h5", ".hdf5", ".keras", ".joblib", ".pkl", ".onnx",
    ".params", ".ubj", ".bst", ".npz", ".npy", ".msgpack", ".gguf", ".cbm",
)  # fmt: skip
NAMES = ("pytorch_model.bin", "tf_model.h5", "model.bin", "model.json", "model.txt", "model.model")
"""Names of models of Hugging Face, fastText, XGBoost and LightGBM whose suffix says little."""
FOLDERS = ("saved_model.pb", "_CHECKPOINT_METADATA", "_METADATA")
"""Files that make their folder a model: TensorFlow's SavedModel, and a checkpoint of Orbax."""

LIMIT = 20_000
"""Files and folders to look at."""

_NO_MODELS = {"__pycache__", "node_modules", "site-packages"}


def find_stray_models(folder: Path, since: float) -> list[str]:
    """Some paths below ``folder`` that look like models and were written after ``since``, seconds since the epoch."""
    found = []
    for path in itertools.chain(_written(folder, since), _above(folder, since)):
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
        if any(name in files and _is_new(os.path.join(parent, name), since) for name in FOLDERS):
            folders.clear()
            yield parent
            continue
        for name in sorted(files):
            path = os.path.join(parent, name)
            if _is_model(name) and _is_new(path, since):
                yield path


def _above(folder: Path, since: float) -> Iterator[str]:
    """Models next to ``folder``: some scripts write to ``../model.pt``."""
    for name in sorted(os.listdir(folder.parent)):
        path = os.path.join(folder.parent, name)
        if _is_model(name) and os.path.isfile(path) and _is_new(path, since):
            yield path


def _is_model(name: str) -> bool:
    return name.endswith(SUFFIXES) or name in NAMES


def _is_new(path: str, since: float) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return state.st_mtime >= since and not os.path.islink(path)
