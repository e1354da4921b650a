"""A controller that is killed at one of its events: ``python controlled.py NAME EVENT WHEN``.

``WHEN`` is ``before`` or ``after`` the event is written. Without an event, it runs to the end of the sweep.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from cloudtrain.sweep.controller import control
from cloudtrain.sweep.journal import Journal


class Killed(Journal):
    """Its process dies at an event."""

    at = ("", "")

    def append(self, event: str, **values: Any) -> dict[str, Any]:
        if self.at == (event, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        record = super().append(event, **values)
        if self.at == (event, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        return record


name, *at = sys.argv[1:]
journal = Killed(Journal.named(name).folder)
journal.at = (at[0], at[1]) if at else ("", "")
with journal.owned():
    control(journal)
