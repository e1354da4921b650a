"""Writes matrices as recordio-protobuf, the format of AWS's own algorithms, as `sagemaker.amazon.common` does.

The messages are those of the SDK's record.proto: a Record has the maps ``features`` (1) and ``label`` (2). Their value
of the key "values" has a tensor: of 32-bit floats (2), 64-bit floats (3), or 32-bit integers (7). A tensor has packed
``values`` (1), and if it is sparse, ``keys`` (2) and ``shape`` (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

from cloudtrain.errors import CloudtrainError

_MAGIC = 0xCED7230A
_KINDS = {("f", 4): 2, ("f", 8): 3, ("i", 8): 7}
"""The tensor of each type of numpy: its kind and its size."""


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
    if labels is not None and labels.shape not in {(size,) for size in array.shape}:
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
