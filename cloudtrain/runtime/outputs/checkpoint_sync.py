"""Syncs the ``checkpoints/`` folder with its URI.

In a job, this is for scripts that write plain files to the folder. `cloudtrain.checkpoint` writes directly to the URI,
with its own protocol; its files are not synced.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from cloudtrain._system.safe_open import Beneath
from cloudtrain.checkpoint.format.layout import committed_step, is_checkpoint_key
from cloudtrain.contract.paths import DEFAULT_BASE, Paths
from cloudtrain.observe import EventLog
from cloudtrain.runtime.outputs.unsupported_outputs import NOT_UTF_8, Skipped, is_utf_8, opened
from cloudtrain.storage import Progress, open_store
from cloudtrain.storage.atomic import replace_file
from cloudtrain.storage.opening import abort_abandoned_uploads

LARGEST_RECORD = 64 << 20
"""The size limit of a record, in bytes."""

State = tuple[int, int]
"""The size of a file, and its modification time in nanoseconds."""


def record_path(paths: Paths) -> Path:
    """The path of the host's record. A new attempt removes it."""
    return paths.output / "checkpoints.json"


def write_record(path: Path, files: Mapping[str, State]) -> None:
    """Write, by key, the states of files when they were downloaded or uploaded. Ignores errors such as a full disk."""
    with contextlib.suppress(OSError):
        replace_file(path, json.dumps(files).encode())


def read_record(paths: Paths) -> dict[str, State] | None:
    """The inverse of `write_record`; None if there is no valid record, as the script may have overwritten it."""
    path = record_path(paths)
    try:
        with Beneath(paths.base) as base:
            data = base.read(paths.key(path), LARGEST_RECORD)
        return {str(key): (int(size), int(time)) for key, (size, time) in json.loads(data).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


SYNC_SECONDS = 5.0

CHECKPOINTS = f"{DEFAULT_BASE}/checkpoints"


class CheckpointSync:
    """Downloads files at the start, then uploads changed files every few seconds and at the end.

    Each host of a job has its own folder, and uploads only files that have changed there since they were downloaded or
    uploaded, so that an old copy of a file never replaces the upload of another host. If several hosts write the same
    file, the last upload remains.

    A file is uploaded if it did not change between two scans, which skips files that are being written. `flush` uploads
    every changed file. Nothing is ever deleted at the URI. Links to files in the folder count as these files.
    """

    what = "checkpoints"

    def __init__(
        self,
        folder: Path,
        uri: str,
        events: EventLog,
        *,
        path: str = CHECKPOINTS,
        whole: bool = False,
        host: str = "",
        record: Path | None = None,
    ) -> None:
        """
        Args:
            path: the folder's path in the script's view, as in the targets of its links.
            whole: also sync checkpoints of a `Checkpointer` that writes to the folder, with manifests after their data.
            host: the name of the host for warnings, if the job has several hosts.
            record: the file in which the state of the sync is kept for `resume`.
        """
        self._folder = folder
        self._path = path
        self._store = open_store(uri)
        self._events = events
        self._whole = whole
        self._prefix = f"{host}: " if host else ""
        self._record = record
        self._busy = threading.Lock()
        self._uploaded: dict[str, State] = {}
        self._seen: dict[str, State] = {}
        self._progress: Progress | None = None
        """Reports the last uploads, including one that the thread had begun before `finish`."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-sync", daemon=True)

    def restore(self) -> None:
        """Download the files of an earlier run. Raises StorageError."""
        from cloudtrain.storage.transfer import download_tree

        abort_abandoned_uploads(self._store.uri)
        fetched = download_tree(self._store, self._folder, select=lambda entry: self._is_synced(entry.key))
        now = self._scan(Skipped())
        # files that only exist in the folder (a restart in place) still have to be uploaded
        self._uploaded = {entry.key: now[entry.key] for entry in fetched if entry.key in now}
        self._write_record()

    def resume(self, uploaded: Mapping[str, State]) -> None:
        """Continue the sync of another process from its record: see `read_record`."""
        self._uploaded = {**uploaded}

    def start(self) -> None:
        self._thread.start()

    def finish(self, progress: Progress | None = None) -> list[str]:
        """Stop syncing, and upload every changed file. Returns warnings. Raises StorageError."""
        self._progress = progress
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        return self.flush()

    def flush(self) -> list[str]:
        """Upload every changed file. Returns warnings about skipped entries, such as pipes. Raises StorageError."""
        skipped = Skipped()
        with self._busy:
            self._upload(self._scan(skipped), skipped)
        return [f"{self._prefix}{warning}" for warning in skipped.warnings]

    def _run(self) -> None:
        while not self._stop.wait(SYNC_SECONDS):
            try:
                with self._busy:
                    self._upload(self._finished(self._scan(Skipped())), Skipped())
            except Exception as error:
                # the next round retries; `finish` raises
                why = getattr(error, "message", error)
                with contextlib.suppress(OSError):
                    self._events.emit(
                        "warning", message=f"{self._prefix}cannot sync {self.what}, will retry: {why}"
                    )

    def _finished(self, now: dict[str, State]) -> dict[str, State]:
        """The files that have not changed since the last scan."""
        stable = {key: state for key, state in now.items() if self._seen.get(key) == state}
        self._seen = now
        return stable

    def _upload(self, files: Mapping[str, State], skipped: Skipped) -> None:
        changed = {key: state for key, state in files.items() if self._uploaded.get(key) != state}
        if not changed:
            return
        skip = partial(_skip, skipped)
        try:
            with Beneath(self._folder, [self._path]) as folder:
                for key in sorted(changed, key=lambda key: committed_step(key) is not None):
                    with opened(folder, key, skip) as file:  # None if it was pruned since the scan
                        if file:
                            self._store.upload(file, key, self._moved)
                            self._uploaded[key] = changed[key]
        finally:
            self._write_record()

    def _moved(self, count: int) -> None:
        if self._progress:
            self._progress(count)

    def _write_record(self) -> None:
        if self._record:
            write_record(self._record, self._uploaded)

    def _scan(self, skipped: Skipped) -> dict[str, State]:
        """The size and modification time of every file, by key."""
        files = {}
        skip = partial(_skip, skipped)
        with contextlib.suppress(FileNotFoundError), Beneath(self._folder, [self._path]) as folder:
            for found in folder.walk(skip):
                if found.is_folder or not self._is_synced(found.key):
                    continue
                if not is_utf_8(found.key):
                    skip(found.key, NOT_UTF_8)
                elif found.is_file:
                    files[found.key] = _state(found.status)
                else:
                    with opened(folder, found.key, skip) as file:
                        if file:
                            files[found.key] = _state(os.fstat(file.fileno()))
        return files

    def _is_synced(self, key: str) -> bool:
        return self._whole or not is_checkpoint_key(key)


def _state(status: os.stat_result) -> State:
    return status.st_size, status.st_mtime_ns


def _skip(skipped: Skipped, key: str, why: str) -> None:
    skipped.add(f"checkpoints/{key}", why)
