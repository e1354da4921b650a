"""Data in S3 for AWS's own algorithms, as `sagemaker.amazon.amazon_estimator` has it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cloudtrain.aws import aws_errors, owner_of
from cloudtrain.errors import InvalidJob
from cloudtrain.sagemaker._recordio import write_numpy_to_dense_tensor
from cloudtrain.sagemaker.s3 import parse_s3_url
from cloudtrain.session import Session
from cloudtrain.spec import FileSystemInput, TrainingInput


@dataclass
class RecordSet:
    """Records in S3, and the name of their channel."""

    s3_data: str
    num_records: int
    feature_dim: int
    s3_data_type: str = "ManifestFile"
    channel: str = "train"
    distribution: str = "ShardedByS3Key"

    def records_s3_input(self) -> TrainingInput:
        """The channel's data."""
        return TrainingInput(self.s3_data, self.distribution, s3_data_type=self.s3_data_type)

    def data_channel(self) -> dict[str, TrainingInput]:
        """The channel for ``fit()``."""
        return {self.channel: self.records_s3_input()}


class FileSystemRecordSet:
    """Records on a file system, and the name of their channel."""

    def __init__(
        self,
        file_system_id: str,
        file_system_type: Any,
        directory_path: str,
        num_records: int,
        feature_dim: int,
        file_system_access_mode: Any = "ro",
        channel: str = "train",
    ) -> None:
        self.file_system_input = FileSystemInput(
            file_system_id, file_system_type, directory_path, file_system_access_mode
        )
        self.num_records, self.feature_dim, self.channel = num_records, feature_dim, channel

    def data_channel(self) -> dict[str, FileSystemInput]:
        """The channel for ``fit()``."""
        return {self.channel: self.file_system_input}


def upload_matrix(
    session: Session, folder: str, count: int, array: Any, labels: Any, *, encrypt: bool
) -> str:
    """Write ``array`` to ``count`` objects below ``folder``. Returns the URI of their manifest.

    Raises:
        InvalidJob: there are fewer rows than objects.
        StorageError: S3 denies access.
    """
    if len(array) < count:
        raise InvalidJob(
            f"record_set: {len(array)} rows are fewer than {count} instances",
            hint="Use fewer instances.",
        )
    options: dict[str, Any] = {"ServerSideEncryption": "AES256"} if encrypt else {}
    if owner := owner_of(folder):
        options["ExpectedBucketOwner"] = owner
    folder = folder.rstrip("/") + "/"
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")

    def put(name: str, body: bytes) -> None:
        with aws_errors(folder + name):
            session.s3_client.put_object(Bucket=bucket, Key=prefix + name, Body=body, **options)

    names = []
    for number, rows in enumerate(_shards(len(array), count)):
        file = io.BytesIO()
        write_numpy_to_dense_tensor(file, array[rows], None if labels is None else labels[rows])
        names.append(f"matrix_{number:0{len(str(count))}}.pbr")
        put(names[-1], file.getvalue())
    put(".amazon.manifest", json.dumps([{"prefix": folder}, *names]).encode())
    return f"{folder}.amazon.manifest"


def _shards(rows: int, count: int) -> Iterator[slice]:
    """Equal parts; the last has the rest."""
    size = rows // count
    for number in range(count):
        yield slice(number * size, None if number == count - 1 else (number + 1) * size)


def check_location(uri: str) -> str:
    """``uri`` with an end slash. Raises StorageError if it is not one of S3."""
    parse_s3_url(uri)
    return uri.rstrip("/") + "/"
