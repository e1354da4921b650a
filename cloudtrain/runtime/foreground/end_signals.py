"""The signals that end a run in the foreground, and the grace period of its ranks."""

from __future__ import annotations

import signal

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.signals import SIGHUP

END_SIGNALS: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    SIGHUP: "a closed terminal",
}

GRACE_SECONDS = 30.0
"""The time that ranks have to save their state and end after Ctrl-C, and pending checkpoints have after a failure."""

Signals = SignalSafeQueue[int]
"""The signals that this process has received."""
