"""How the tensors of a snapshot are grouped into objects, each a safetensors file."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cloudtrain.checkpoint import _safetensors
from cloudtrain.checkpoint._crew import WORKERS
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._manifest import Manifest, Piece
from cloudtrain.checkpoint._snapshot import Snapshot, Span

PART_SIZE = 32 * 2**20
"""Bytes of tensors in one object, at the most. A multiple of any element's size."""
LEAST_PART = 8 * 2**20
"""What smaller objects would gain, their requests cost."""

SAMPLE = 4096
STRIDE = 2**20


@dataclass(frozen=True)
class TensorFile:
    """A safetensors file, not yet put together: its pieces lie in the snapshot."""

    pieces: tuple[Piece, ...]
    data: tuple[memoryview, ...]
    """The header, and the bytes of the pieces, together where they are neighbours in the snapshot."""

    @cached_property
    def sha256(self) -> bytes:
        digest = hashlib.sha256()
        for part in self.data:
            digest.update(part)
        return digest.digest()

    @property
    def size(self) -> int:
        return sum(part.nbytes for part in self.data)


class Grouping:
    """Groups tensors in the same way at every save, and those that change apart from those that do not.

    So the file of tensors that are never trained has the same bytes in every save, and is stored once.
    """

    def __init__(self) -> None:
        self._changing: set[str] = set()
        self._samples: dict[str, int] = {}

    def adopt(self, manifest: Manifest) -> None:
        """Go on with the grouping of an earlier run."""
        own = [entry for entry in manifest.tensors if entry.key.startswith(manifest.own_prefix)]
        if len(own) < len(manifest.tensors):
            self._changing |= {piece.tensor for entry in own for piece in entry.pieces}

    def files(self, snapshot: Snapshot) -> list[TensorFile]:
        """The files of all tensors in ``snapshot``."""
        samples = {name: _sample(snapshot.memory[slice(*span)]) for name, span in snapshot.spans.items()}
        self._changing |= {
            name for name, sample in samples.items() if self._samples.get(name, sample) != sample
        }
        self._samples = samples
        resting = [name for name in snapshot.specs if name not in self._changing]
        changing = [name for name in snapshot.specs if name in self._changing]
        part_size = _part_size(snapshot.memory.nbytes)
        return [
            _file(pieces, snapshot)
            for names in (resting, changing)
            for pieces in _plan(names, snapshot.spans, part_size)
        ]


def _sample(data: memoryview) -> int:
    """Differs for most tensors that differ. Only the grouping hangs on it: what is stored is compared whole."""
    checksum = zlib.crc32(data[-SAMPLE:])
    if data.nbytes <= SAMPLE:
        return checksum
    for begin in range(0, data.nbytes, STRIDE):
        checksum = zlib.crc32(data[begin : begin + SAMPLE], checksum)
    return checksum


def _part_size(total: int) -> int:
    """Of a state of ``total`` bytes: a small one too is work for all threads."""
    share = -(-total // (WORKERS * STRIDE)) * STRIDE
    return min(PART_SIZE, max(LEAST_PART, share))


def _plan(names: Iterable[str], spans: Mapping[str, Span], part_size: int) -> Iterator[list[Piece]]:
    """The pieces of each file. A tensor that is larger than a file has several of its own."""
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


def _file(pieces: Sequence[Piece], snapshot: Snapshot) -> TensorFile:
    header = _safetensors.header(_entry(piece, snapshot.specs[piece.tensor]) for piece in pieces)
    return TensorFile(tuple(pieces), (memoryview(header), *_runs(pieces, snapshot)))


def _runs(pieces: Sequence[Piece], snapshot: Snapshot) -> Iterator[memoryview]:
    """The bytes of all pieces, those that are neighbours together."""
    begin = end = snapshot.spans[pieces[0].tensor][0] + pieces[0].begin
    for piece in pieces:
        offset, _ = snapshot.spans[piece.tensor]
        if offset + piece.begin != end:
            yield snapshot.memory[begin:end]
            begin = offset + piece.begin
        end = offset + piece.end
    yield snapshot.memory[begin:end]


def _entry(piece: Piece, spec: TensorSpec) -> tuple[str, TensorSpec]:
    """The name and shape in the file: a part of a tensor is flat."""
    if piece.end - piece.begin == spec.nbytes:
        return piece.tensor, spec
    begin, end = piece.begin // spec.itemsize, piece.end // spec.itemsize
    return f"{piece.tensor}[{begin}:{end}]", spec._replace(shape=(end - begin,))
