"""Keeps the ``checkpoints/`` folder and its URI the same, for scripts that just write files there.

What `cloudtrain.checkpoint` writes goes to the URI itself, by its own protocol, and is left alone here.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from cloudtrain.checkpoint.layout import is_checkpoint_key
from cloudtrain.observe import EventLog
from cloudtrain.storage import Entry, open_store

SYNC_SECONDS = 5.0


class CheckpointSync:
    """Downloads once at the start, then uploads what changed, every few seconds and at the end.

    A file is uploaded when it did not change between two looks, so that one being written is left alone;
    `finish` uploads whatever is new. Nothing is ever deleted at the URI.
    """

    def __init__(self, folder: Path, uri: str, events: EventLog) -> None:
        self._folder = folder
        self._store = open_store(uri)
        self._events = events
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-sync", daemon=True)

    def restore(self) -> None:
        """Fetch what an earlier run left. Raises StorageError."""
        from cloudtrain.storage.transfer import download_tree

        fetched = download_tree(self._store, self._folder, select=lambda entry: not _is_ours(entry))
        now = self._look()
        # what was here and not there (a restart in place) is still to be uploaded
        self._uploaded = {entry.key: now[entry.key] for entry in fetched if entry.key in now}

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Upload the rest. Raises StorageError."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._upload(self._look())

    def _run(self) -> None:
        while not self._stop.wait(SYNC_SECONDS):
            try:
                now = self._look()
                stable = {key: state for key, state in now.items() if self._seen.get(key) == state}
                self._seen = now
                self._upload(stable)
            except Exception as error:
                # the next round tries again; `finish` is loud
                why = getattr(error, "message", error)
                with contextlib.suppress(OSError):
                    self._events.emit("warning", message=f"checkpoints are not synced: {why}")

    def _upload(self, files: dict[str, tuple[int, int]]) -> None:
        for key, state in files.items():
            if self._uploaded.get(key) != state:
                self._store.upload(self._folder / key, key)
                self._uploaded[key] = state

    def _look(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file, by key."""
        files = {}
        for parent, _, names in os.walk(self._folder):
            for name in names:
                path = Path(parent) / name
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                key = path.relative_to(self._folder).as_posix()
                if not is_checkpoint_key(key):
                    files[key] = (status.st_size, status.st_mtime_ns)
        return files


def _is_ours(entry: Entry) -> bool:
    return is_checkpoint_key(entry.key)
