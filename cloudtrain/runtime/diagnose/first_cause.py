"""Decides which failure of an attempt is the cause of the others."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Callable

from cloudtrain.contract import FailureClass, FailureReport

SETTLE_SECONDS = 0.7
"""Seconds for which failures are collected after the first one, before one is chosen as the cause."""
CAUSE_SECONDS = 4.0
"""The same while native code has ended ranks that lost another one: that one may still be printing its traceback."""

COLLECTIVE = re.compile(
    r"connection (?:closed|reset) by peer|connection was likely closed|broken pipe|connection refused"
    r"|timed? ?out|nccl|gloo|collective|process group|socket",
    re.IGNORECASE,
)
"""Messages of a rank that lost another rank: a consequence, not the cause."""

_ADDRESS_IN_USE = re.compile(r"address already in use", re.IGNORECASE)
"""Also names a socket, but is a cause: the other ranks do not reach the one that could not listen."""

LOST_PARTNER = ("CollectiveError", "HorovodInternalError")
"""Exceptions that collectives of cloudtrain and Horovod raise when another rank is gone."""

_BACKEND = re.compile(r"gloo|nccl|connection (?:closed|reset) by peer|process group", re.IGNORECASE)
"""Messages of the backends of ``torch.distributed``."""

_CAUSES = (FailureClass.OUT_OF_MEMORY, FailureClass.GPU_FAULT, FailureClass.GPU_SETUP, FailureClass.DISK_FULL)
"""Classes of failures that no other rank can cause, even if their messages mention NCCL."""

MOST_RANKS = 8
"""The most ranks that a hint names."""


class Failures:
    """The failures of all ranks and hosts in one attempt, and when their cause can be decided.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reports: list[FailureReport] = []
        self._clock = clock
        self._decide_at: float | None = None
        self._waits_for_cause = False
        """Whether all failures so far are of ranks that lost another one."""

    def add(self, report: FailureReport, settle: float = SETTLE_SECONDS) -> None:
        """Add a failure. If it is the first one, wait ``settle`` seconds for the others."""
        self.reports.append(report)
        lost_another = report.signal is not None and report.failure_class == FailureClass.COLLECTIVE_TIMEOUT
        decide_at = self._clock() + (CAUSE_SECONDS if lost_another else settle)
        if self._decide_at is None:
            self._decide_at, self._waits_for_cause = decide_at, lost_another
        elif self._waits_for_cause and not lost_another:
            self._decide_at, self._waits_for_cause = min(self._decide_at, decide_at), False

    def excuse(self) -> None:
        """The failures so far follow from a preemption: none of them is a cause."""
        self._decide_at = None

    @property
    def are_settling(self) -> bool:
        """Whether there is a cause to decide, now or later."""
        return self._decide_at is not None

    @property
    def are_settled(self) -> bool:
        """Whether the cause can be decided."""
        return self._decide_at is not None and self._clock() >= self._decide_at

    def cause(self, ended: Sequence[int] = ()) -> FailureReport:
        """The failure that the others follow from.

        Args:
            ended: ranks that have ended with exit code 0. The hint names them if that is why a collective failed.
        """
        first = min(
            self.reports, key=lambda report: (is_consequence(report), report.rank is None, report.time or 0)
        )
        return with_ended_ranks(first, ended)


def is_consequence(report: FailureReport) -> bool:
    """Whether this failure follows from another: a collective that lost its peer, a SIGTERM."""
    if report.failure_class in _CAUSES:
        return False
    if report.signal is not None:
        aborted = report.failure_class == FailureClass.COLLECTIVE_TIMEOUT
        return aborted or report.exit_code == 128 + signal.SIGTERM
    if report.exception_type is None:
        return report.exit_code == 128 + signal.SIGTERM
    if _ADDRESS_IN_USE.search(report.message):
        return False
    return report.exception_type in LOST_PARTNER or bool(COLLECTIVE.search(report.message))


def with_ended_ranks(report: FailureReport, ended: Sequence[int]) -> FailureReport:
    """``report``, with a hint that names the ranks that had ended with 0 if that is why a collective failed."""
    if not ended or not is_consequence(report) or report.exception_type is None:
        return report
    names = ", ".join(map(str, sorted(ended)[:MOST_RANKS])) + ", ..." * (len(ended) > MOST_RANKS)
    who = f"ranks {names}" if len(ended) > 1 else f"rank {names}"
    return replace(
        report,
        hint=f"Before this, {who} ended with exit code 0, so that collectives cannot complete: let every rank train the"
        " same number of steps.",
    )


def is_lost_partner(error: BaseException) -> bool:
    """Whether a collective failed: of cloudtrain, Horovod or ``torch.distributed``."""
    if type(error).__name__ in LOST_PARTNER:
        return True
    return isinstance(error, RuntimeError) and bool(_BACKEND.search(str(error)))
