"""Whether an attempt has saved a checkpoint: without one, the next attempt would get no further."""

from __future__ import annotations

import threading

from cloudtrain.checkpoint.format.layout import committed_step, is_checkpoint_key
from cloudtrain.environment.commits import commit_of
from cloudtrain.storage import open_store

RUNNING_TIME = "running-time.json"
"""The key of the record of `cloudtrain.runtime.limits`, which may be next to the checkpoints."""
WAIT_SECONDS = 20.0
"""How long the end of an attempt waits for a listing, because a time limit is near."""

Listing = frozenset[tuple[str, int, float]]


class Saved:
    """Compares the checkpoints and files at the URI of a job with those that were there at the start."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._before = _Reader(uri)

    def is_new(self) -> bool:
        """Whether there is a checkpoint, or another file of the script, that is new or has changed.

        True if that is unknown, because the storage does not answer.
        """
        after, before = _Reader(self._uri).result(), self._before.result()
        return after is None or before is None or bool(after - before)


class _Reader(threading.Thread):
    """Lists the URI in the background."""

    def __init__(self, uri: str) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._uri = uri
        self._found: Listing | None = None
        self.start()

    def run(self) -> None:
        self._found = saved_files(self._uri) if self._uri else None

    def result(self) -> Listing | None:
        self.join(WAIT_SECONDS)
        return self._found


def saved_files(uri: str) -> Listing | None:
    """The whole checkpoints, and the files of the script, at ``uri``; None if they cannot be listed."""
    try:
        return frozenset(
            (info.key, info.size, info.modified) for info in open_store(uri).list() if _counts(info.key)
        )
    except Exception:  # no boto3, no credentials, an outage: unknown
        return None


def _counts(key: str) -> bool:
    """Whether an object is a whole checkpoint, a commit or a file of the script, and not a part of a checkpoint."""
    is_whole = committed_step(key) is not None or commit_of(key) is not None
    return key != RUNNING_TIME and (is_whole or not is_checkpoint_key(key))
