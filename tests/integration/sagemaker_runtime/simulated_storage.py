"""SageMaker's S3 transfers for a container: downloads channels, syncs checkpoints, uploads outputs."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from simulated_container import Container


def download_channels(request: Mapping[str, Any], container: Container, number: int, count: int) -> None:
    """Put every channel under ``input/data`` of the ``number``-th of ``count`` containers.

    The path of an object is the part of its key after the prefix. Raises LookupError with SageMaker's message if
    there are no objects.
    """
    for channel in request["InputDataConfig"]:
        source = channel["DataSource"]["S3DataSource"]
        if container.place.group in source.get("InstanceGroupNames", [container.place.group]):
            sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
            share = slice(number, None, count) if sharded else slice(None)
            folder = container.ml / "input" / "data" / channel["ChannelName"]
            folder.mkdir()
            _download(source["S3Uri"], folder, share)


def _download(uri: str, folder: Path, share: slice) -> None:
    client = boto3.client("s3")
    bucket, prefix = _split(uri)
    found = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    if not found:
        raise LookupError(f"No S3 objects found under S3 URL {uri!r} given in input data source.")
    for item in sorted(found, key=lambda item: item["Key"])[share]:
        name = item["Key"][len(prefix) :].lstrip("/") or item["Key"].rpartition("/")[2]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, item["Key"], str(path))


class CheckpointSync:
    """Syncs the folder of each container with the job's URI. Never deletes objects."""

    def __init__(self, config: Mapping[str, str], containers: list[Container]) -> None:
        inside = config.get("LocalPath", "/opt/ml/checkpoints")
        self._folders = [container.ml / Path(inside).relative_to("/opt/ml") for container in containers]
        self._bucket, self._prefix = _split(config["S3Uri"].rstrip("/") + "/")
        self._seen: dict[Path, tuple[int, int]] = {}

    def restore(self) -> None:
        client = boto3.client("s3")
        found = client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix).get("Contents", [])
        for folder in self._folders:
            for item in found:
                path = folder / item["Key"][len(self._prefix) :]
                path.parent.mkdir(parents=True, exist_ok=True)
                client.download_file(self._bucket, item["Key"], str(path))
                self._seen[path] = _state(path)

    def upload(self) -> None:
        """Upload new and changed files."""
        for folder in self._folders:
            # os.walk, unlike rglob, skips folders that the training removes meanwhile
            files = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
            for path in files:
                try:
                    state, data = _state(path), path.read_bytes()
                except FileNotFoundError:
                    continue
                if self._seen.get(path) != state:
                    key = self._prefix + path.relative_to(folder).as_posix()
                    boto3.client("s3").put_object(Bucket=self._bucket, Key=key, Body=data)
                    self._seen[path] = state


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def upload_outputs(request: Mapping[str, Any], containers: list[Container], *, model: bool) -> None:
    """Upload the files of all containers together, as ``model.tar.gz`` and ``output.tar.gz`` or uncompressed."""
    config = request["OutputDataConfig"]
    bucket, prefix = _split(f"{config['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output/")
    client = boto3.client("s3")
    for kind, inside, plain in (("model", "model", "model"), ("output", "output/data", "data")):
        files = {
            path.relative_to(container.ml / inside).as_posix(): path
            for container in containers
            for path in (container.ml / inside).rglob("*")
            if path.is_file()
        }
        if not files or (kind == "model" and not model):
            continue
        if config.get("CompressionType") == "NONE":
            for name, path in files.items():
                client.upload_file(str(path), bucket, f"{prefix}{plain}/{name}")
            continue
        archive = containers[0].folder / f"{kind}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            for name, path in files.items():
                tar.add(path, name)
        client.upload_file(str(archive), bucket, f"{prefix}{kind}.tar.gz")


def _split(uri: str) -> tuple[str, str]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, prefix
