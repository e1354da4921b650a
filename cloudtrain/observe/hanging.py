"""Hangs of a job, which the leader reports: an event ``hanging`` when one is found, and another when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields
from cloudtrain.observe.stacks import LONGEST_NAME, LONGEST_STACK

HANGING = "hanging"
"""The kind of the event."""
SCRIPT, STORAGE = "script", "storage"
"""The causes: a rank of the script, or storage that does not answer."""
MOST_CALLS = 8
"""The most calls of a hanging rank's stack in a notification."""
MOST_HANGS = 100
"""The most hangs of an attempt that cause notifications, as a script may forge them."""

LONGEST_MESSAGE = 600
"""Characters, as a script may have forged the event."""


@dataclass(frozen=True)
class Hanging:
    """A hang: the rank that the others wait for, or the ranks that may be this one."""

    ranks: str
    """The ranks, such as ``1`` or ``0-6,8``."""
    rank: int
    """The first of them."""
    count: int
    """Their number."""
    host: str
    """The host of the first of them."""
    cause: str = SCRIPT
    where: str = ""
    """Its innermost call, and the line of the script that led to it."""
    message: str = ""
    """Where the rank waits, and what the others wait for."""
    stack: str = ""
    """A line for each call of its main thread, the innermost first."""
    seconds: float = 0.0
    """How long no rank had shown a sign of life when the hang was found."""
    time: float = 0.0
    """When the hang was found, in seconds since the epoch."""

    @property
    def since(self) -> float:
        """The last sign of life of any rank, in seconds since the epoch."""
        return max(self.time - self.seconds, 0.0)

    def __str__(self) -> str:
        """
        >>> str(Hanging("1", 1, 1, "algo-1", message="rank 1 on algo-1 is in load at train.py:8", seconds=300))
        'no sign of life for 5 min: rank 1 on algo-1 is in load at train.py:8'
        """
        return f"{_silence(self.seconds)}: {self.message}"

    def until(self, ended: Mapping[str, Any]) -> str:
        """How long it lasted, and the sign of life that ended it, from the event of its end. Raises ValueError.

        >>> hang = Hanging("1", 1, 1, "algo-1", seconds=300, time=1000)
        >>> hang.until({"time": 1300, "sign": "rank 1 on algo-1 used the network"})
        'no sign of life for 10 min, until rank 1 on algo-1 used the network'
        """
        given = Fields(ended)
        sign = given.text("sign", "")[:LONGEST_MESSAGE] or "a rank showed one"
        return f"{_silence(max(given.time('time', self.time) - self.since, 0.0))}, until {sign}"

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return asdict(self)

    def to_event(self) -> dict[str, Any]:
        """The fields of the event, which has its own time."""
        return {name: value for name, value in asdict(self).items() if name != "time"}

    @classmethod
    def from_dict(cls, record: Any) -> Hanging:
        """The inverse of `to_dict`, also for the fields of an event. Raises ValueError for anything else."""
        given = Fields(record)
        short = {name: given.text(name, "")[:LONGEST_NAME] for name in ("host", "cause", "where")}
        return cls(
            ranks=given.text("ranks")[:LONGEST_NAME],
            rank=given.integer("rank"),
            count=given.integer("count", 1, least=1),
            message=given.text("message", "")[:LONGEST_MESSAGE],
            stack=given.text("stack", "")[:LONGEST_STACK],
            seconds=given.number("seconds", 0.0, least=0),
            time=given.time("time", 0.0),
            **short,
        )


def _silence(seconds: float) -> str:
    minutes = seconds / 60
    return f"no sign of life for {f'{minutes:.0f} min' if minutes >= 2 else f'{seconds:.0f} s'}"


def read_hanging(event: Mapping[str, Any]) -> Hanging | None:
    """The hang that an event reports; None if the event reports its end. Raises ValueError for any other event."""
    return None if Fields(event).text("state") == "ended" else Hanging.from_dict(event)
