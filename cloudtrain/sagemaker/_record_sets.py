"""Data in S3 for AWS's own algorithms, as in `sagemaker.amazon`: recordio-protobuf, and sets of its records.

The messages are those of the SDK's record.proto: a Record has the maps ``features`` (1) and ``label`` (2). In each, the
value of the key "values" has a tensor: of 32-bit floats (2), 64-bit floats (3), or 32-bit integers (7). A tensor has
packed ``values`` (1), and if it is sparse, ``keys`` (2) and ``shape`` (3).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from cloudtrain.aws import aws_errors, owner_of
from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.sagemaker.s3 import parse_s3_url
from cloudtrain.session import Session
from cloudtrain.spec import FileSystemInput, TrainingInput

_MAGIC = 0xCED7230A
_KINDS = {("f", 4): 2, ("f", 8): 3, ("i", 8): 7}
"""The field number of the tensor for each NumPy type, given by its kind and size."""


def write_numpy_to_dense_tensor(file: BinaryIO, array: Any, labels: Any = None) -> None:
    """Write each row of a numpy matrix, with its label if there are any.

    Raises:
        CloudtrainError: the array has another shape or type.
    """
    tensor = _check(array, labels)
    for row, vector in enumerate(array):
        _write(file, _tensor(tensor, _values(tensor, vector)), labels, row)


def write_spmatrix_to_sparse_tensor(file: BinaryIO, array: Any, labels: Any = None) -> None:
    """Write each row of a sparse matrix of scipy, with its label if there are any.

    Raises:
        CloudtrainError: the array is not sparse, or has another shape or type.
    """
    if not hasattr(array, "tocsr"):
        raise CloudtrainError("the array is not a sparse matrix", hint="Use write_numpy_to_dense_tensor.")
    tensor, rows = _check(array, labels), array.tocsr()
    shape = _field(3, _varint(array.shape[1]))
    for row in range(rows.shape[0]):
        start, end = rows.indptr[row], rows.indptr[row + 1]
        keys = b"".join(_varint(int(key)) for key in rows.indices[start:end])
        values = _values(tensor, rows.data[start:end])
        _write(file, _tensor(tensor, values + (_field(2, keys) if keys else b"") + shape), labels, row)


def _check(array: Any, labels: Any) -> int:
    if len(array.shape) != 2:
        raise CloudtrainError(f"the array has {len(array.shape)} dimensions, not 2", hint="Pass a matrix.")
    if labels is not None and labels.shape != array.shape[:1]:
        raise CloudtrainError(
            f"labels of shape {labels.shape} do not fit to an array of shape {array.shape}",
            hint="Pass a vector with one label for each row.",
        )
    return _kind(array.dtype)


def _kind(dtype: Any) -> int:
    try:
        return _KINDS[dtype.kind, dtype.itemsize]
    except KeyError:
        raise CloudtrainError(
            f"there are no records of {dtype}", hint="Use array.astype('float32')."
        ) from None


def _write(file: BinaryIO, features: bytes, labels: Any, row: int) -> None:
    record = _field(1, features)
    if labels is not None:
        tensor = _kind(labels.dtype)
        record += _field(2, _tensor(tensor, _values(tensor, labels[row : row + 1])))
    file.write(struct.pack("<II", _MAGIC, len(record)) + record + bytes(-len(record) % 4))


def _tensor(kind: int, content: bytes) -> bytes:
    """An entry of a map, with the key "values"."""
    return _field(1, b"values") + _field(2, _field(kind, content))


def _values(kind: int, vector: Any) -> bytes:
    if kind == 7:
        packed = b"".join(_varint(int(value) & (2**64 - 1)) for value in vector)
    else:
        packed = vector.astype("<f4" if kind == 2 else "<f8").tobytes()
    return _field(1, packed) if packed else b""


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    return bytes(_septets(value))


def _septets(value: int) -> Iterable[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


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
    """Equal parts; the last one also has the remaining rows."""
    size = rows // count
    for number in range(count):
        yield slice(number * size, None if number == count - 1 else (number + 1) * size)


def check_location(uri: str) -> str:
    """``uri`` with a trailing slash. Raises StorageError if it is not an S3 URI."""
    parse_s3_url(uri)
    return uri.rstrip("/") + "/"
