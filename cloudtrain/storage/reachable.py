"""Whether a storage answers now, for callers that can continue without it."""

from __future__ import annotations

import threading
import time

from cloudtrain.errors import Unreachable
from cloudtrain.storage.opening import open_store
from cloudtrain.storage.retry_policy import Patience, using

OPEN_SECONDS = 10.0
"""How long the import of a storage's client may take in addition."""


def answers(uri: str, seconds: float) -> bool:
    """Whether the storage at ``uri`` answers one request within some seconds; a refusal is an answer, too.

    A request that hangs is left to its thread.
    """
    is_open, has_answered = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            store = open_store(uri)
            is_open.set()
            end = time.monotonic() + seconds
            with using(Patience(warn=lambda _line: None, until=lambda: end)):
                next(iter(store.list("attempts/")), None)
        except Unreachable:
            return
        except Exception:  # also one of a storage library: the caller will get it too, and report it
            pass
        has_answered.set()
        is_open.set()

    threading.Thread(target=ask, name="storage-reachable", daemon=True).start()
    return is_open.wait(OPEN_SECONDS) and has_answered.wait(seconds)
