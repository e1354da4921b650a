"""Streams the data of a channel in Pipe mode, through a new named pipe for each epoch, as on SageMaker.

The pipes are ``input/data/<channel>_0``, ``<channel>_1``, .... Each one transfers all objects of the channel, one after
the other, to the single process that opens it. When a process has opened it, its name is removed, so that a second
process gets an error instead of a part of the data; the pipe for the next epoch exists by then. A pipe that is not
opened costs nothing, and a reader that closes a pipe early ends its epoch.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import selectors
import stat
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from cloudtrain._system.safe_open import Beneath
from cloudtrain.errors import InvalidJob, StorageError
from cloudtrain.storage import ObjectInfo, open_store

if TYPE_CHECKING:
    from cloudtrain.storage import Store

POLL_SECONDS = 0.02
BLOCK = 1 << 20

MAGIC = 0xCED7230A
LARGEST_RECORD = (1 << 29) - 1
"""A record of MXNet's RecordIO consists of a magic number, its length, and its data, padded to four bytes."""

OnError = Callable[[Exception], object]


class _Stopped(Exception):
    """Raised in the thread when the job has ended."""


class PipeChannel:
    """The pipes of one channel on one host, fed by a thread from `start` to `stop`.

    Args:
        stem: the path of the pipes without the epoch's number, such as ``.../input/data/train``.
        base: the URI of the folder of the objects.
        entries: the objects.
        document: the channel's entry in ``inputdataconfig.json``.
        on_error: called in the thread if the data cannot be read; it has to end the job. The pipe stays open, because
            its reader would interpret a closed pipe as the end of the data.
        mode: the permissions of the pipes.
        beneath: a folder above the pipes to which other users write. No link below it is followed.
    """

    def __init__(
        self,
        stem: Path,
        base: str,
        entries: Iterable[ObjectInfo],
        document: Mapping[str, Any],
        on_error: OnError,
        *,
        mode: int = 0o600,
        beneath: Path | None = None,
    ) -> None:
        self._stem = stem
        self._beneath = beneath
        self._folder: Beneath
        """The folder of the pipes, from `start` to `stop`."""
        self._store = open_store(base)
        self._entries = sorted(entries, key=lambda entry: entry.key)
        self._document = document
        self._on_error = on_error
        self._mode = mode
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pipe-{stem.name}", daemon=True)

    def start(self) -> None:
        """Create the first pipe, and start feeding it. Raises OSError."""
        top = self._beneath or self._stem.parent
        with Beneath(top) as folder:
            inner = self._stem.parent.relative_to(top).as_posix()
            folder.make_folder("" if inner == "." else inner)
            self._folder = folder.inside("" if inner == "." else inner)
        try:
            self._remove()
            self._make(0)
        except BaseException:
            self._folder.close()
            raise
        self._thread.start()

    def stop(self) -> None:
        """End the thread and remove the pipes. Call it when all processes of the job have ended."""
        if self._stop.is_set() or self._thread.ident is None:
            return
        self._stop.set()
        self._thread.join()
        self._remove()
        self._folder.close()

    def _remove(self) -> None:
        """Remove all pipes of the channel, including those of an attempt that was killed."""
        for found in self._folder.contents():
            stem, _, epoch = found.key.rpartition("_")
            if stem == self._stem.name and epoch.isdigit() and stat.S_ISFIFO(found.status.st_mode):
                self._folder.remove(found.key)

    def _name(self, epoch: int) -> str:
        return f"{self._stem.name}_{epoch}"

    def _make(self, epoch: int) -> None:
        self._folder.make_pipe(self._name(epoch), self._mode)

    def _run(self) -> None:
        epoch = 0
        try:
            while True:
                with self._open(epoch) as pipe:
                    epoch += 1
                    self._make(epoch)
                    self._folder.remove(self._name(epoch - 1))
                    try:
                        for data in _stream(self._store, self._order(epoch - 1), self._document):
                            self._write(pipe.fileno(), data)
                    except BrokenPipeError:
                        pass  # the reader has closed the pipe early
                    except _Stopped:
                        raise
                    except Exception as error:
                        self._on_error(error)
                        self._stop.wait()
        except _Stopped:
            pass
        except Exception as error:
            self._on_error(error)

    def _open(self, epoch: int) -> Any:
        """Wait for a reader of the pipe, and open its writing end."""
        while not self._stop.is_set():
            # not a blocking open, as a reader may never open the pipe
            with contextlib.suppress(OSError):  # ENXIO: there is no reader
                return os.fdopen(self._folder.open_pipe(self._name(epoch)), "wb", buffering=0)
            self._stop.wait(POLL_SECONDS)
        raise _Stopped

    def _write(self, descriptor: int, data: bytes) -> None:
        """Raises BrokenPipeError if the reader has closed the pipe, and _Stopped at the end of the job."""
        left = memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_WRITE)
            while left:
                if self._stop.is_set():
                    raise _Stopped
                if selector.select(POLL_SECONDS):
                    with contextlib.suppress(BlockingIOError):
                        left = left[os.write(descriptor, left) :]

    def _order(self, epoch: int) -> list[ObjectInfo]:
        """The objects in their order for an epoch: shuffled differently for each epoch if the channel requests it."""
        entries = list(self._entries)
        shuffle = self._document.get("ShuffleConfig")
        if shuffle:
            random.Random(f"{shuffle['Seed']} {epoch}").shuffle(entries)
        return entries


def _stream(store: Store, entries: Sequence[ObjectInfo], document: Mapping[str, Any]) -> Iterator[bytes]:
    """The contents of the objects, decompressed and wrapped as the channel requests."""
    is_compressed = document.get("CompressionType") == "Gzip"
    is_wrapped = document.get("RecordWrapperType") == "RecordIO"
    for entry in entries:
        with store.open(entry.key) as file:
            try:
                blocks = _blocks(gzip.GzipFile(fileobj=file) if is_compressed else file)
                yield from [_record(b"".join(blocks), entry.key)] if is_wrapped else blocks
            except (EOFError, gzip.BadGzipFile) as error:
                raise StorageError(
                    f"{store.uri}/{entry.key} is not a valid gzip file: {error}",
                    hint="Leave out compression.",
                ) from None


def _blocks(file: Any) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _record(data: bytes, key: str) -> bytes:
    if len(data) > LARGEST_RECORD:
        raise InvalidJob(f"{key} is too large for one record of RecordIO", hint="Leave out record_wrapping.")
    return struct.pack("<II", MAGIC, len(data)) + data + bytes(-len(data) % 4)
