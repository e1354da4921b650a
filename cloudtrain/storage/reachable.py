"""Whether a storage answers now, for callers that can do without it."""

from __future__ import annotations

import threading
import time

from cloudtrain.errors import Unreachable
from cloudtrain.storage.opening import open_store
from cloudtrain.storage.retry_policy import Patience, using


def answers(uri: str, seconds: float) -> bool:
    """Whether the storage at ``uri`` answers one request within some seconds; a refusal is an answer, too.

    A request that hangs is left to its thread.
    """
    end = time.monotonic() + seconds
    has_answered = threading.Event()

    def ask() -> None:
        try:
            with using(Patience(warn=lambda _line: None, until=lambda: end)):
                next(iter(open_store(uri).list("attempts/")), None)
        except Unreachable:
            return
        except Exception:  # of a framework of storage, too: the caller meets it again, and reports it
            pass
        has_answered.set()

    threading.Thread(target=ask, name="storage-reachable", daemon=True).start()
    return has_answered.wait(seconds)
