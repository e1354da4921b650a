"""The notice that a machine is about to be reclaimed, and the exit status of a rank that ended because of it."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import LARGEST_REPORT, Fields, parse_json

STOP = "SIGTERM"
PREEMPT = "SIGUSR1"
"""Signals to a job. They have names, because a client on macOS, which numbers them differently, may signal a job on
Linux."""
STACKS, NATIVE_STACKS = "SIGWINCH", "SIGQUIT"
"""The signals to the runtime of the first host that request the stacks of all ranks, without and with native frames.

SIGWINCH does nothing to a process without a handler, and container engines forward it, unlike SIGURG. Java uses
SIGQUIT for the same purpose.
"""

PREEMPTED = 75
"""Exit status of a rank that saved its state and exited: ``EX_TEMPFAIL`` of sysexits.h, "try again"."""

SPOT_VARIABLE = "CLOUDTRAIN_SPOT_NOTICE"
"""If it is not empty, EC2's instance metadata is polled for the notice of a spot interruption."""

_FILE = "preemption"


@dataclass(frozen=True)
class Notice:
    """The machine is about to be reclaimed, or the job is about to be stopped."""

    deadline: float
    """When remaining processes are expected to be killed, in seconds since the epoch."""
    reason: str

    def write(self, run: Path) -> None:
        """Notify the ranks of this host by a file in the run folder, written atomically."""
        temporary = run / f".{_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(run / _FILE)

    @classmethod
    def read(cls, run: Path) -> Notice | None:
        """The notice written by the runtime of this host, if any. Anything else in its place is ignored."""
        try:
            given = Fields(parse_json(read_regular(run / _FILE, LARGEST_REPORT)))
            return cls(given.time("deadline"), given.text("reason"))
        except (OSError, ValueError):
            return None


class SignalsOfAgent:
    """Marks in the run folder, by which ranks and their elastic agent agree that SIGTERM is a notice.

    Otherwise, the agent ends ranks by SIGTERM when it restarts them.
    """

    def __init__(self, run: Path) -> None:
        self._offer, self._answer = run / "agent-can-kill", run / "agent-has-to-kill"

    def offer(self) -> None:
        """Called by the agent, which can end ranks by SIGKILL."""
        with contextlib.suppress(OSError):
            self._offer.touch()

    def accept(self) -> bool:
        """Called by a rank. Returns False if its agent has made no offer, so that SIGTERM has to end the rank."""
        if self._offer.exists():
            with contextlib.suppress(OSError):
                self._answer.touch()
                return True
        return False

    @property
    def are_notices(self) -> bool:
        return self._answer.exists()
