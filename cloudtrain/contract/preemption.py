"""The notice that a machine is about to be taken away, and how a rank says that it left because of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

PREEMPTED = 75
"""Exit status of a rank that has saved what it needs and left: ``EX_TEMPFAIL`` of sysexits.h, "try again"."""

SPOT_VARIABLE = "CLOUDTRAIN_SPOT_NOTICE"
"""Set to anything but nothing, it has EC2's instance metadata asked for the notice of a spot interruption."""

_FILE = "preemption"


@dataclass(frozen=True)
class Notice:
    """The machine, or the job, is about to be taken away."""

    deadline: float
    """Seconds since the epoch: what still runs then is killed, as far as it is known."""
    reason: str

    def write(self, run: Path) -> None:
        """Tell the ranks of this host, by a file in the run folder that appears whole."""
        temporary = run / f".{_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(run / _FILE)

    @classmethod
    def read(cls, run: Path) -> Notice | None:
        """The notice that the runtime of this host has written; None where there is none."""
        try:
            return cls(**json.loads((run / _FILE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
