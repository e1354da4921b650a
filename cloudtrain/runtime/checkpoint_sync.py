"""Syncs the ``checkpoints/`` folder with its URI.

In a job, this serves scripts that write plain files to the folder. `cloudtrain.checkpoint` writes to the URI directly,
by its own protocol; its files are not synced.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from cloudtrain.checkpoint.format.layout import committed_step, is_checkpoint_key
from cloudtrain.errors import NotFound
from cloudtrain.observe import EventLog
from cloudtrain.storage import open_store

SYNC_SECONDS = 5.0


class CheckpointSync:
    """Downloads at the start, then uploads changed files every few seconds and at the end.

    A file is uploaded when it did not change between two scans, which skips files that are being written. `flush`
    uploads every changed file. Nothing is ever deleted at the URI.
    """

    def __init__(self, folder: Path, uri: str, events: EventLog, *, whole: bool = False) -> None:
        """
        Args:
            whole: also sync checkpoints of a `Checkpointer` that writes to the folder; manifests after their data.
        """
        self._folder = folder
        self._store = open_store(uri)
        self._events = events
        self._whole = whole
        self._busy = threading.Lock()
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-sync", daemon=True)

    def restore(self) -> None:
        """Download the files of an earlier run. Raises StorageError."""
        from cloudtrain.storage.transfer import download_tree

        fetched = download_tree(self._store, self._folder, select=lambda entry: self._is_synced(entry.key))
        now = self._scan()
        # files that only exist in the folder (a restart in place) still have to be uploaded
        self._uploaded = {entry.key: now[entry.key] for entry in fetched if entry.key in now}

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop syncing, and upload every changed file. Raises StorageError."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.flush()

    def flush(self) -> None:
        """Upload every changed file. Raises StorageError."""
        with self._busy:
            self._upload(self._scan())

    def _run(self) -> None:
        while not self._stop.wait(SYNC_SECONDS):
            try:
                with self._busy:
                    now = self._scan()
                    stable = {key: state for key, state in now.items() if self._seen.get(key) == state}
                    self._seen = now
                    self._upload(stable)
            except Exception as error:
                # the next round retries; `finish` raises
                why = getattr(error, "message", error)
                with contextlib.suppress(OSError):
                    self._events.emit("warning", message=f"cannot sync checkpoints, will retry: {why}")

    def _upload(self, files: dict[str, tuple[int, int]]) -> None:
        for key, state in sorted(files.items(), key=lambda item: committed_step(item[0]) is not None):
            if self._uploaded.get(key) != state:
                try:
                    self._store.upload(self._folder / key, key)
                except NotFound:
                    if (self._folder / key).exists():
                        raise
                    continue  # pruned since the scan, after its manifest
                self._uploaded[key] = state

    def _scan(self) -> dict[str, tuple[int, int]]:
        """Size and modification time of every file, by key."""
        files = {}
        home = os.path.realpath(self._folder) + os.sep
        for parent, _, names in os.walk(self._folder):
            for name in names:
                path = Path(parent) / name
                if self._whole and not os.path.realpath(path).startswith(home):
                    continue  # the target of a link differs between here and the container that created it
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                key = path.relative_to(self._folder).as_posix()
                if self._is_synced(key):
                    files[key] = (status.st_size, status.st_mtime_ns)
        return files

    def _is_synced(self, key: str) -> bool:
        return self._whole or not is_checkpoint_key(key)
