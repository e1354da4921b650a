"""The safetensors container: a JSON header, then the bytes of every tensor.

Format (https://github.com/huggingface/safetensors#format): the header's length N, 8 bytes, unsigned,
little-endian; N bytes of JSON, ``name -> {dtype, shape, data_offsets}``, padded with blanks; the bytes of the
tensors without holes. A dtype that the format lacks goes as raw bytes, with one more dimension.

Own code because it is short, the containers of training jobs often lack the library, and the library needs
one more copy of the tensors. The tests read our files with the library, and the library's with this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec

METADATA = "__metadata__"
"""The one name that no tensor can have."""

_LENGTH = 8
_DTYPES = {
    "bool": "BOOL",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}  # fmt: skip


def encode(tensors: Mapping[str, tuple[TensorSpec, memoryview]]) -> bytes:
    """One file with all ``tensors``, by name."""
    header = {}
    offset = 0
    for name, (spec, data) in tensors.items():
        dtype = _DTYPES.get(spec.dtype)
        header[name] = {
            "dtype": dtype or "U8",
            "shape": spec.shape if dtype else (*spec.shape, spec.itemsize),
            "data_offsets": (offset, offset + data.nbytes),
        }
        offset += data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *(data for _, data in tensors.values())])


def decode(data: bytes) -> dict[str, memoryview]:
    """The bytes of each tensor by name, as views of ``data``.

    Raises:
        Damaged: this is no such file, or one cut short.
    """
    view = memoryview(data)
    try:
        start = _LENGTH + int.from_bytes(view[:_LENGTH], "little")
        header = json.loads(data[_LENGTH:start])
        header.pop(METADATA, None)
        body = view[start:]
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= body.nbytes:
                raise Damaged(f"tensor {name!r} ends at byte {end} of {body.nbytes}")
            tensors[name] = body[begin:end]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"this is no safetensors file: {error}") from error
    return tensors
