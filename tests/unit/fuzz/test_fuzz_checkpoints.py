"""Damaged manifests and trees of checkpoints, also those whose hashes were made to fit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from fuzzing import check, damaged_documents, random

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.manifest import Manifest, _digest
from cloudtrain.checkpoint.inspect import download, list_checkpoints
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import FileStore

STATE = {"weights": numpy.arange(4.0), "name": "x", "nested": {"a": (1, 2.5, b"bytes")}, "nan": float("nan")}
OUTSIDE = ("../../evil", "/etc/evil", "step-000000000005/../../evil", "evil", "step-000000000005/")


def sealed(document: Any) -> Any:
    """``document`` with the hash that makes it look intact."""
    if isinstance(document, dict):
        document = {name: value for name, value in document.items() if name != "sha256"}
        return {**document, "sha256": _digest(document)}
    return document


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, bytes]:
    """A folder with a checkpoint, and its manifest."""
    folder = tmp_path / "checkpoints"
    with Checkpointer(folder.as_uri()) as checkpointer:
        checkpointer.save(5, STATE, metrics={"loss": 0.5, "nan": float("nan")})
    [manifest] = folder.glob("step-*/manifest.json")
    return folder, manifest.read_bytes()


def test_the_manifest(saved: tuple[Path, bytes]) -> None:
    def read(data: bytes) -> None:
        manifest = Manifest.from_bytes(data, 5)
        manifest.decode_metrics()
        assert all(
            stored.key.startswith("step-") and ".." not in stored.key.split("/")
            for stored in manifest.objects
        )
        assert sum(stored.size for stored in manifest.objects) >= 0

    valid = json.loads(saved[1])
    documents = damaged_documents([valid], random("manifest"), seal=sealed)
    check("manifest", documents, read, CheckpointError, advised=False)


def test_the_tree() -> None:
    document, leaves = tree.encode(STATE)

    def read(data: bytes) -> None:
        parsed = tree.parse(data)
        specs = tree.decode_specs(parsed)
        tree.decode_chunks(parsed, specs)
        tree.children(parsed["tree"])
        tree.decode(parsed, dict.fromkeys(specs))

    assert leaves
    chunked = {"tree": {"$tensor": "w"}, "tensors": {"w": {
        "framework": "numpy", "dtype": "float32", "itemsize": 4, "shape": [4, 2],
        "shards": [[[[0, 0], [2, 2]], "w[0]"], [[[2, 0], [2, 2]], "w[1]"]],
    }}}  # fmt: skip
    check(
        "tree", damaged_documents([document, chunked], random("tree")), read, CheckpointError, advised=False
    )


@pytest.mark.parametrize("key", OUTSIDE)
def test_a_manifest_cannot_name_files_outside(saved: tuple[Path, bytes], tmp_path: Path, key: str) -> None:
    folder, data = saved
    document = json.loads(data)
    document["tree"]["key"] = key
    path = folder / "step-000000000005" / "manifest.json"
    path.write_text(json.dumps(sealed(document)))
    store = FileStore(folder)
    [info] = list_checkpoints(store)
    assert "is not the key of an object of a checkpoint" in info.problem
    with pytest.raises(CheckpointError):
        download(store, info, tmp_path / "downloaded")
    assert not (tmp_path / "downloaded").exists()
    assert not (tmp_path / "evil").exists()


def test_a_restore_from_a_forged_checkpoint_is_refused(saved: tuple[Path, bytes]) -> None:
    folder, data = saved
    path = folder / "step-000000000005" / "manifest.json"
    document = json.loads(data)
    [tree_file] = folder.glob("step-*/*/tree.json")
    forged = (
        b"[" * 100_000,
        b"{}",
        b'{"tree": {"$tensor": ["x"]}, "tensors": {}}',
        b'{"tree": 1, "tensors": 5}',
    )
    for content in forged:
        tree_file.write_bytes(content)
        document["tree"].update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        path.write_text(json.dumps(sealed(document)))
        with Checkpointer(folder.as_uri()) as checkpointer, pytest.raises(CheckpointError) as caught:
            checkpointer.restore(step=5)
        assert "Traceback" not in str(caught.value)
