"""What a supervisor needs of the hosts of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cloudtrain.contract import FailureReport


class RunningHost(Protocol):
    """The runtime of one host, from its start on."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        ...

    def send_signal(self, number: int) -> None:
        """To one that has ended: nothing."""
        ...

    def lost(self, name: str) -> FailureReport:
        """The report of host ``name``, which has ended and left none itself."""
        ...


def numbered_names(count: int) -> list[str]:
    """Names for hosts that have none, as on SageMaker: ``algo-1``, ``algo-2``, ..."""
    return [f"algo-{number + 1}" for number in range(count)]


class Hosts(Protocol):
    """Where the runtimes of one job run. Their folders are made, and filled, before they start."""

    interface: str
    """The network interface by which they reach each other."""
    names: Sequence[str]
    """In the order of their ranks; the first one leads."""
    end_seconds: float
    """How long they may take to end, once the grace of a stop is over: they end their ranks themselves."""

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        """Start the runtime of every host; by the host's name.

        Args:
            attempt: how often the job was started before.
            log: the descriptor of the job's log, which takes what they print.
        """
        ...

    def finish(self, *, failed: bool) -> FailureReport | None:
        """All hosts of an attempt have ended: save what they have left, and leave nothing of them but folders.

        Returns what went wrong with that, after an attempt that has not ``failed``.
        """
        ...
