"""Safetensors files: how the tensors of a snapshot are grouped into objects.

Format (https://github.com/huggingface/safetensors#format): the length N of the header as 8 bytes, unsigned and
little-endian; N bytes of JSON, ``name -> {dtype, shape, data_offsets}``, padded with spaces; the bytes of the tensors
without gaps. A dtype that the format lacks is stored as raw bytes, with one more dimension.

The safetensors library is not used: it is often missing from training containers, and it would need another copy of
the tensors. Only the header is written here, and none is read, as the manifest records where each tensor is. The tests
read the files with the library.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cloudtrain.checkpoint.format.manifest import Manifest, Piece
from cloudtrain.checkpoint.tensors.framework import TensorSpec
from cloudtrain.checkpoint.tensors.snapshot import Snapshot, Span
from cloudtrain.checkpoint.workers import WORKERS

PART_SIZE = 32 * 2**20
"""Maximum bytes of tensors in one object. A multiple of every element size."""
LEAST_PART = 8 * 2**20
"""Minimum: smaller objects would cost as much in additional requests as they gain in parallelism."""

SAMPLE = 4096
STRIDE = 2**20

_ALIGNMENT = 8
_DTYPES = {
    "bool": "BOOL",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}  # fmt: skip


@dataclass(frozen=True)
class TensorFile:
    """A safetensors file that is not assembled yet: its bytes are still in the snapshot."""

    pieces: tuple[Piece, ...]
    data: tuple[memoryview, ...]
    """The header, then the bytes of the pieces; pieces that are adjacent in the snapshot are joined."""

    @cached_property
    def sha256(self) -> bytes:
        digest = hashlib.sha256()
        for part in self.data:
            digest.update(part)
        return digest.digest()

    @property
    def size(self) -> int:
        return sum(part.nbytes for part in self.data)


class FileGrouping:
    """Groups tensors into files the same way at every save, with changing and unchanging tensors apart.

    A file of tensors that are never trained therefore has the same bytes in every save and is stored once.
    """

    def __init__(self) -> None:
        self._changing: set[str] = set()
        self._samples: dict[str, int] = {}

    def resume_from(self, manifest: Manifest) -> None:
        """Continue with the grouping of an earlier run."""
        own = [stored for stored in manifest.tensors if stored.key.startswith(manifest.own_prefix)]
        if len(own) < len(manifest.tensors):
            self._changing |= {piece.tensor for stored in own for piece in stored.pieces}

    def files(self, snapshot: Snapshot) -> list[TensorFile]:
        """The files of all tensors in ``snapshot``."""
        samples = {name: _sample(snapshot.memory[slice(*span)]) for name, span in snapshot.spans.items()}
        self._changing |= {
            name for name, sample in samples.items() if self._samples.get(name, sample) != sample
        }
        self._samples = samples
        unchanging = [name for name in snapshot.specs if name not in self._changing]
        changing = [name for name in snapshot.specs if name in self._changing]
        part_size = _part_size(snapshot.memory.nbytes)
        return [
            tensor_file(pieces, snapshot)
            for names in (unchanging, changing)
            for pieces in _plan(names, snapshot.spans, part_size)
        ]


def header(tensors: Iterable[tuple[str, TensorSpec]]) -> bytes:
    """The bytes before those of ``tensors``, which follow in this order."""
    records = {}
    offset = 0
    for name, spec in tensors:
        dtype = _DTYPES.get(spec.dtype)
        records[name] = {
            "dtype": dtype or "U8",
            "shape": spec.shape if dtype else (*spec.shape, spec.itemsize),
            "data_offsets": (offset, offset + spec.nbytes),
        }
        offset += spec.nbytes
    text = json.dumps(records, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _sample(data: memoryview) -> int:
    """A checksum of samples, different for most data that differ.

    It decides the grouping only. Whether a file must be stored is decided by its full hash.
    """
    checksum = zlib.crc32(data[-SAMPLE:])
    if data.nbytes <= SAMPLE:
        return checksum
    for begin in range(0, data.nbytes, STRIDE):
        checksum = zlib.crc32(data[begin : begin + SAMPLE], checksum)
    return checksum


def _part_size(total: int) -> int:
    """For a state of ``total`` bytes; a small state is still divided among all workers."""
    share = -(-total // (WORKERS * STRIDE)) * STRIDE
    return min(PART_SIZE, max(LEAST_PART, share))


def _plan(names: Iterable[str], spans: Mapping[str, Span], part_size: int) -> Iterator[list[Piece]]:
    """The pieces of each file. A tensor larger than a file gets several files to itself."""
    group: list[Piece] = []
    size = 0
    for name in names:
        first, last = spans[name]
        nbytes = last - first
        if nbytes > part_size:
            for begin in range(0, nbytes, part_size):
                yield [Piece(name, begin, min(begin + part_size, nbytes))]
            continue
        if size + nbytes > part_size:
            yield group
            group, size = [], 0
        group.append(Piece(name, 0, nbytes))
        size += nbytes
    if group:
        yield group


def tensor_file(pieces: Sequence[Piece], snapshot: Snapshot) -> TensorFile:
    """The file with these pieces of the tensors in ``snapshot``."""
    start = header(_named_spec(piece, snapshot.specs[piece.tensor]) for piece in pieces)
    return TensorFile(tuple(pieces), (memoryview(start), *_runs(pieces, snapshot)))


def _runs(pieces: Sequence[Piece], snapshot: Snapshot) -> Iterator[memoryview]:
    """The bytes of all pieces, with adjacent pieces joined."""
    begin = end = snapshot.spans[pieces[0].tensor][0] + pieces[0].begin
    for piece in pieces:
        offset, _ = snapshot.spans[piece.tensor]
        if offset + piece.begin != end:
            yield snapshot.memory[begin:end]
            begin = offset + piece.begin
        end = offset + piece.end
    yield snapshot.memory[begin:end]


def _named_spec(piece: Piece, spec: TensorSpec) -> tuple[str, TensorSpec]:
    """The name and spec in the file; a partial tensor is flattened."""
    if piece.end - piece.begin == spec.nbytes:
        return piece.tensor, spec
    begin, end = piece.begin // spec.itemsize, piece.end // spec.itemsize
    return f"{piece.tensor}[{begin}:{end}]", spec._replace(shape=(end - begin,))
