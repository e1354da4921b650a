"""FSDP models saved on one number of ranks continue bit for bit on another."""

from __future__ import annotations

from pathlib import Path

import pytest
from shard_ranks import run

from cloudtrain.storage import open_store

pytestmark = pytest.mark.timeout(900)  # each run starts torch on every rank


@pytest.mark.parametrize(
    ("saved_on", "resumed_on"), [(2, [1, 3, 4]), pytest.param(4, [2], marks=pytest.mark.soak)]
)
def test_fsdp2_on_another_number_of_ranks(tmp_path: Path, saved_on: int, resumed_on: list[int]) -> None:
    uri, reference = str(tmp_path / "checkpoints"), str(tmp_path / "reference")
    run("training.py", saved_on, "save", uri, reference)
    for size in resumed_on:
        run("training.py", size, "resume", uri, reference)


@pytest.mark.parametrize(
    "wrap", ["hybrid", *(pytest.param(wrap, marks=pytest.mark.soak) for wrap in ("rows", "hybrid1"))]
)
def test_replicas_are_stored_once(tmp_path: Path, wrap: str) -> None:
    uri, reference = str(tmp_path / "checkpoints"), str(tmp_path / "reference")
    run("training.py", 4, "save", uri, reference, "--wrap", wrap)
    names = sorted(entry.key.rpartition("/")[2] for entry in open_store(Path(uri).as_uri()).list())
    assert names == [
        "manifest.json",
        "tensors-00000-00000.safetensors",
        "tensors-00001-00000.safetensors",
        "tree.json",
    ]
    run("training.py", 4, "resume", uri, reference, "--wrap", wrap)
    run("training.py", 2, "resume", uri, reference, "--wrap", "fsdp2")


def test_fsdp1(tmp_path: Path) -> None:
    uri, reference = str(tmp_path / "checkpoints"), str(tmp_path / "reference")
    run("training.py", 2, "save", uri, reference, "--wrap", "fsdp1")
    run("training.py", 3, "resume", uri, reference, "--wrap", "fsdp1")
    run("training.py", 2, "resume", uri, reference, "--wrap", "fsdp2")
