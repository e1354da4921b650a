"""The safetensors container: a JSON header, then the bytes of every tensor.

Format (https://github.com/huggingface/safetensors#format): the header's length N, 8 bytes, unsigned,
little-endian; N bytes of JSON, ``name -> {dtype, shape, data_offsets}``, padded with blanks; the bytes of the
tensors without holes. A dtype that the format lacks goes as raw bytes, with one more dimension.

Own code because it is short, the containers of training jobs often lack the library, and the library needs
one more copy of the tensors. Only the header is made here, and none is read: the manifest tells what lies
where. The tests read our files with the library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

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


def header(tensors: Iterable[tuple[str, TensorSpec]]) -> bytes:
    """What stands before the bytes of ``tensors``, which follow in this order."""
    entries = {}
    offset = 0
    for name, spec in tensors:
        dtype = _DTYPES.get(spec.dtype)
        entries[name] = {
            "dtype": dtype or "U8",
            "shape": spec.shape if dtype else (*spec.shape, spec.itemsize),
            "data_offsets": (offset, offset + spec.nbytes),
        }
        offset += spec.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    return len(text).to_bytes(_LENGTH, "little") + text
