"""Brings the source and the bundled runtime to the pods in ConfigMaps. `s3_delivery` is the other way.

A request names them only; they are read when it is submitted, or printed for kubectl.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, StorageError
from cloudtrain.packaging import RuntimeArchive, pack_runtime
from cloudtrain.platforms.kubernetes.labels import RUNTIME_KEY, SOURCE_KEY, runtime_map
from cloudtrain.storage import state_home, uri_to_path
from cloudtrain.storage.atomic import write_file

LARGEST = 1 << 20
"""In bytes: what the API server accepts in one ConfigMap, before base64."""


def with_files(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a request, with the files that its ConfigMaps deliver.

    Raises:
        InvalidJob: the source is too large for a ConfigMap.
        StorageError: the packed source is not in the cache of this machine any more.
    """
    files = body["files"]
    if files["delivery"] != "configmap":
        return list(body["objects"])
    main = body["objects"][0]
    name = main["metadata"]["name"]
    content = {
        name: {SOURCE_KEY: _source(files["source"])},
        runtime_map(name): {RUNTIME_KEY: _compressed(runtime_archive(body).path)},
    }
    return [
        _filled(item, content[item["metadata"]["name"]]) if item["kind"] == "ConfigMap" else item
        for item in body["objects"]
    ]


def runtime_archive(body: Mapping[str, Any]) -> RuntimeArchive:
    """The bundled runtime, which must be the one that the request names. Raises InvalidJob, StorageError."""
    archive = pack_runtime(state_home() / "runtime")
    if archive.sha256 != body["files"]["runtime_sha256"]:
        raise InvalidJob(
            "the request was rendered by another version of cloudtrain", hint="Render it again with this one."
        )
    return archive


def _compressed(runtime: Path) -> bytes:
    """The bundled runtime, compressed. It is kept next to it: compressing it again takes 0.15 s."""
    data, path = runtime.read_bytes(), runtime.with_name(RUNTIME_KEY)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        kept = path.read_bytes()
        if gzip.decompress(kept) == data:
            return kept
    compressed = gzip.compress(data, mtime=0)
    with contextlib.suppress(OSError):  # a full disk: the next submission compresses it again
        write_file(path, compressed)
    return compressed


def _source(uri: str) -> bytes:
    path = uri_to_path(uri)
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"the packed source cannot be read: {path}: {error.strerror}", hint="Submit the job again."
        ) from error


def _filled(item: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    size = sum(map(len, files.values())) + sum(len(text.encode()) for text in item.get("data", {}).values())
    if size > LARGEST:
        raise InvalidJob(
            f"source_dir: the packed source has {len(next(iter(files.values()))):,} bytes, and a ConfigMap takes "
            f"{LARGEST:,} with the rest of the job",
            hint="Deliver it through S3: platform_options.delivery: s3, with an output_path or code_location in S3. "
            "Or leave out what the script does not need: see .cloudtrainignore.",
        )
    return {**item, "binaryData": {name: base64.b64encode(data).decode() for name, data in files.items()}}
