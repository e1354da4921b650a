"""Packs boto3 for jobs whose image lacks it: that of this machine, reduced to the parts that S3 needs."""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath

from cloudtrain.packaging.zipapp import RuntimeArchive, keep_archive, zip_info

BOTO3_FILE = "boto3.zip"

PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
"""boto3 and everything that it imports."""

SERVICES = ("s3", "sts")
"""The services whose descriptions are packed. STS gives a pod's service account its role."""

_DATA = PurePosixPath("botocore/data")
_ENDPOINTS = "botocore/data/endpoints.json"
_LEFT_OUT = ("boto3/data", "boto3/examples", "dateutil/zoneinfo", "urllib3/contrib/emscripten")


def pack_boto3(cache_dir: Path) -> RuntimeArchive:
    """Pack the boto3 of this installation, as ``<cache_dir>/<sha256>/boto3.zip``.

    Raises:
        StorageError: the cache cannot be written.
    """
    return keep_archive(_archive(), cache_dir, BOTO3_FILE, "boto3")


@functools.cache
def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in _files():
            data = path.read_bytes()
            archive.writestr(
                zip_info(name), _endpoints(data) if name == _ENDPOINTS else data, zipfile.ZIP_DEFLATED
            )
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """The name of each file in the archive, and its path in this installation."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin, f"boto3 is installed, and needs {package}"
        origin = Path(spec.origin)
        if origin.name != "__init__.py":
            yield origin.name, origin
            continue
        for path in sorted(origin.parent.rglob("*"), key=PurePath.as_posix):
            name = path.relative_to(origin.parent.parent).as_posix()
            if path.is_file() and _is_needed(PurePosixPath(name)):
                yield name, path


def _endpoints(data: bytes) -> bytes:
    """The table of endpoints, reduced to `SERVICES`."""
    document = json.loads(data)
    for partition in document["partitions"]:
        services = partition["services"]
        partition["services"] = {name: services[name] for name in SERVICES if name in services}
    return json.dumps(document).encode()


def _is_needed(name: PurePosixPath) -> bool:
    if "__pycache__" in name.parts or any(name.is_relative_to(folder) for folder in _LEFT_OUT):
        return False
    if name.is_relative_to(_DATA):
        service = name.relative_to(_DATA).parts
        return len(service) == 1 or service[0] in SERVICES
    return name.suffix == ".py" or name.name == "cacert.pem"
