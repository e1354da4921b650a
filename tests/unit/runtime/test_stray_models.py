"""Models that a script wrote into its working folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.runtime.outputs import unsupported_outputs
from cloudtrain.runtime.outputs.merge import stray_message
from cloudtrain.runtime.outputs.unsupported_outputs import find_stray_models

STARTED = 1000.0


def write(folder: Path, *names: str, modified: float = 2000.0) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (modified, modified))


@pytest.mark.parametrize(
    "name",
    [
        "model.pt",
        "out/model.pth",
        "a.h5",
        "a.keras",
        "a.joblib",
        "a.safetensors",
        "a.ckpt",
        "a.onnx",
        "a.pkl",
        "checkpoint.pth.tar",
        "out/pytorch_model.bin",
        "weights.npz",
        "w.npy",
        "m.bst",
        "model.json",
    ],
)
def test_a_file_that_looks_like_a_model(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "train.py", "log.txt")
    assert find_stray_models(tmp_path, STARTED) == [name]


@pytest.mark.parametrize(
    ("mark", "part"),
    [
        ("saved_model.pb", "variables/variables.h5"),
        ("_CHECKPOINT_METADATA", "state/array.npy"),
        ("MLmodel", "model.skops"),
    ],
)
def test_a_model_of_several_files_is_its_folder(tmp_path: Path, mark: str, part: str) -> None:
    write(tmp_path, f"export/1/{mark}", f"export/1/{part}")
    assert find_stray_models(tmp_path, STARTED) == ["export/1"]


def test_a_model_above_the_working_folder(tmp_path: Path) -> None:
    write(tmp_path, "up.pt", "old.txt", "elsewhere/b.pt", "code/train.py")
    assert find_stray_models(tmp_path / "code", STARTED) == ["../up.pt"]


def test_files_of_the_source_and_of_libraries_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, "pretrained.pt", modified=STARTED - 1)
    write(tmp_path, ".cache/a.pt", "venv/lib/site-packages/x/a.pt")
    (tmp_path / "link.pt").symlink_to("/etc/passwd")
    assert find_stray_models(tmp_path, STARTED) == []


def test_a_folder_with_many_files_is_looked_at_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsupported_outputs, "MOST_FILES", 10)
    write(tmp_path, *(f"data/{number}" for number in range(20)), "z/model.pt")
    assert find_stray_models(tmp_path, STARTED) == []


def test_the_message_is_one_line_and_names_a_few(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number}.pt" for number in range(9)), "\n.pt")
    message = stray_message(find_stray_models(tmp_path, STARTED))
    assert "\n" not in message
    assert "and more" in message
    assert "SM_MODEL_DIR" in message
