"""The signals that end a run in the foreground, and how long it then takes."""

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
"""How long ranks may save their state and end after Ctrl-C, and pending checkpoints after a failure."""

Signals = SignalSafeQueue[int]
"""The signals that this process has received."""
