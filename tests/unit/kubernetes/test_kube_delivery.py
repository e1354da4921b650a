"""The files that ConfigMaps deliver."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

from cloudtrain.packaging import pack_runtime, runtime_sha256
from cloudtrain.platforms.kubernetes.labels import RUNTIME_KEY, runtime_map
from cloudtrain.platforms.kubernetes.submit import with_files
from cloudtrain.storage import state_home


def _delivered(folder: Path) -> bytes:
    """The runtime in its ConfigMap."""
    source = folder / "sourcedir.tar.gz"
    source.write_bytes(b"source")
    names = ("train", runtime_map("train"))
    maps: list[dict[str, Any]] = [{"kind": "ConfigMap", "metadata": {"name": name}} for name in names]
    files = {"delivery": "configmap", "source": source.as_uri(), "runtime_sha256": runtime_sha256()}
    body = {"files": files, "objects": [{"kind": "Job", "metadata": {"name": "train"}}, *maps]}
    return base64.b64decode(with_files(body)[-1]["binaryData"][RUNTIME_KEY])


def test_the_compressed_runtime_is_kept_unless_it_is_damaged(tmp_path: Path) -> None:
    compressed = _delivered(tmp_path)
    runtime = pack_runtime(state_home() / "runtime").path
    assert gzip.decompress(compressed) == runtime.read_bytes()
    kept = runtime.with_name(RUNTIME_KEY)
    before = kept.stat().st_mtime_ns
    assert _delivered(tmp_path) == kept.read_bytes() == compressed
    assert kept.stat().st_mtime_ns == before
    for damage in (
        compressed[:-100],
        compressed[:5000] + b"?" + compressed[5001:],
        b"",
        gzip.compress(b"other"),
    ):
        kept.write_bytes(damage)
        assert _delivered(tmp_path) == kept.read_bytes() == compressed


def test_a_runtime_that_cannot_be_kept_is_delivered(tmp_path: Path) -> None:
    compressed = _delivered(tmp_path)
    kept = pack_runtime(state_home() / "runtime").path.with_name(RUNTIME_KEY)
    kept.unlink()
    kept.mkdir()
    assert _delivered(tmp_path) == compressed
