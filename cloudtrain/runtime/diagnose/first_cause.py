"""Decides which failure of a rank or host, or which end of a runtime, is the cause of an attempt's failure.

The leader collects failures (`Failures`), and all hosts report the cause that it has chosen. The supervisor observes
the runtimes from outside (`HostEnds`). It uses the hosts' report, or else the end of the first runtime without one.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Callable

from cloudtrain._system.patterns import pattern
from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.failure import signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.supervisor.hosts import RunningHost

SETTLE_SECONDS = 0.7
"""Seconds for which failures are collected after the first one, before one is chosen as the cause."""
CAUSE_SECONDS = 4.0
"""Seconds to wait if native code has ended ranks that lost another rank, which may still be printing its traceback."""

COLLECTIVE = pattern(
    r"connection (?:closed|reset) by peer|connection was likely closed|broken pipe|connection refused"
    r"|timed? ?out|nccl|gloo|collective|process group|socket",
    re.IGNORECASE,
)
"""Messages of a rank that lost another rank: a consequence, not the cause."""

_ADDRESS_IN_USE = pattern(r"address already in use", re.IGNORECASE)
"""Messages that mention a socket but are a cause: the other ranks cannot reach the rank that could not listen."""

LOST_PARTNER = ("CollectiveError", "HorovodInternalError")
"""Exceptions that collectives of cloudtrain and Horovod raise when another rank has ended."""

_BACKEND = pattern(r"gloo|nccl|connection (?:closed|reset) by peer|process group", re.IGNORECASE)
"""Messages of the backends of ``torch.distributed``."""

_CAUSES = (FailureClass.OUT_OF_MEMORY, FailureClass.GPU_FAULT, FailureClass.GPU_SETUP, FailureClass.DISK_FULL)
"""Classes of failures that no other rank can cause, even if their messages mention NCCL."""

MOST_RANKS = 8
"""The most ranks that a hint names."""

INTERRUPTED = 128 + signal.SIGTERM
"""The exit code of a runtime that was stopped."""
CRASH_SECONDS = 3.0
"""The time that the other hosts may take to detect the crash of a host."""

NOT_WORTH_A_RETRY = (
    FailureClass.SYNTAX_ERROR,
    FailureClass.IMPORT_ERROR,
    FailureClass.REQUIREMENTS,
    FailureClass.MISSING_DATA,
    FailureClass.GPU_SETUP,
    FailureClass.UPLOAD,
)
"""Failures that would recur, or that happen after the training is complete."""


class Failures:
    """Collects the failures of all ranks and hosts in one attempt, and decides on their cause after a delay.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reports: list[FailureReport] = []
        self._clock = clock
        self._decide_at: float | None = None
        self._waits_for_cause = False
        """Whether all failures so far are of ranks that lost another rank."""

    def add(self, report: FailureReport, settle: float = SETTLE_SECONDS) -> None:
        """Add a failure. The first one starts a wait of ``settle`` seconds for the others."""
        self.reports.append(report)
        lost_another = report.signal is not None and report.failure_class == FailureClass.COLLECTIVE_TIMEOUT
        decide_at = self._clock() + (CAUSE_SECONDS if lost_another else settle)
        if self._decide_at is None:
            self._decide_at, self._waits_for_cause = decide_at, lost_another
        elif self._waits_for_cause and not lost_another:
            self._decide_at, self._waits_for_cause = min(self._decide_at, decide_at), False

    def excuse(self) -> None:
        """Discard the failures so far as causes, because they follow from a preemption."""
        self._decide_at = None

    @property
    def are_settling(self) -> bool:
        """Whether there are failures whose cause can be decided, now or later."""
        return self._decide_at is not None

    @property
    def are_settled(self) -> bool:
        """Whether the cause can be decided."""
        return self._decide_at is not None and self._clock() >= self._decide_at

    def cause(self, ended: Sequence[int] = ()) -> FailureReport:
        """The failure that caused the others.

        Args:
            ended: ranks that have ended with exit code 0. If a collective failed because of that, the hint names them.
        """
        first = min(
            self.reports, key=lambda report: (is_consequence(report), report.rank is None, report.time or 0)
        )
        return with_ended_ranks(first, ended)


def is_consequence(report: FailureReport) -> bool:
    """Whether this failure follows from another one, such as the loss of a peer in a collective, or a SIGTERM."""
    if report.failure_class in _CAUSES:
        return False
    if report.signal is not None:
        aborted = report.failure_class == FailureClass.COLLECTIVE_TIMEOUT
        return aborted or report.exit_code == INTERRUPTED
    if report.exception_type is None:
        return report.exit_code == INTERRUPTED
    if _ADDRESS_IN_USE.search(report.message):
        return False
    return report.exception_type in LOST_PARTNER or bool(COLLECTIVE.search(report.message))


def with_ended_ranks(report: FailureReport, ended: Sequence[int]) -> FailureReport:
    """``report``. If a collective failed because ranks had ended with exit code 0, a hint names them."""
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
    """Whether ``error`` is of a failed collective of cloudtrain, Horovod or ``torch.distributed``."""
    if type(error).__name__ in LOST_PARTNER:
        return True
    return isinstance(error, RuntimeError) and bool(_BACKEND.search(str(error)))


class HostEnds:
    """Observes the runtimes of all hosts in one attempt, and decides which end of a runtime is a failure.

    Args:
        runtimes: the runtimes by host, with the leader first.
        report: returns the failure that a host's runtime reported, its own or the job's; None without one.
        is_ending: returns whether the end of the attempt was requested, so that the loss of a host does not count.
        host_timeout: the seconds after which hosts give up on a leader that does not respond.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        runtimes: Mapping[str, RunningHost],
        report: Callable[[str], FailureReport | None],
        is_ending: Callable[[], bool],
        host_timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtimes = runtimes
        self._report = report
        self._is_ending = is_ending
        self._host_timeout = host_timeout
        self._clock = clock
        self._is_stopped = self._is_killed = False
        """Whether a signal to end was sent to all runtimes, and whether SIGKILL was."""
        self.lost_late: dict[str, FailureReport] = {}
        """The hosts that were lost after the end was requested."""
        self._lost: FailureReport | None = None
        """The first host that was lost before that."""
        self._lost_at = 0.0
        self._leader_failed_at: float | None = None
        self._abandoned: set[str] = set()
        self._alone_at = clock()
        """The time since which some hosts have ended and others have not."""

    @property
    def are_running(self) -> bool:
        return any(runtime.poll() is None for runtime in self._runtimes.values())

    @property
    def are_completed(self) -> bool:
        codes = [runtime.poll() for runtime in self._runtimes.values()]
        return bool(codes) and not any(codes)

    def send_signal(self, number: int) -> None:
        """Send SIGTERM or SIGKILL to all runtimes. An end by this signal does not count as a failure."""
        self._is_stopped = True
        self._is_killed |= number == SIGKILL
        for runtime in self._runtimes.values():
            runtime.send_signal(number)

    def request_stacks(self, number: int) -> None:
        """Send a signal to the leader's runtime that requests the stacks of all ranks."""
        for runtime in list(self._runtimes.values())[:1]:
            runtime.send_signal(number)

    def look(self) -> None:
        """Poll all runtimes, and record the first host that was lost."""
        for name, runtime in self._runtimes.items() if self._lost is None else ():
            code = runtime.poll()
            if (
                code in (None, 0, INTERRUPTED)
                or self._was_ended(code)
                or name in self._abandoned
                or self._report(name)
            ):
                continue
            report = runtime.lost(name) or lost_report(name, code)
            if self._is_ending():
                self.lost_late.setdefault(name, report)
            else:
                self._lost, self._lost_at = report, self._clock()
                return

    def _was_ended(self, code: int) -> bool:
        """Whether a runtime was stopped before it had a signal handler, or killed because it did not end."""
        return (code == -signal.SIGTERM and self._is_stopped) or (code == -SIGKILL and self._is_killed)

    @property
    def wait_in_vain(self) -> bool:
        """Whether the others have not detected the loss of a host, or the leader failed before it could listen."""
        now = self._clock()
        if self._lost and now - self._lost_at > CRASH_SECONDS:
            return True
        if next(iter(self._runtimes.values())).poll() in (None, 0, INTERRUPTED):
            self._leader_failed_at = None
            return False
        self._leader_failed_at = self._leader_failed_at or now
        return now - self._leader_failed_at > self._host_timeout + CRASH_SECONDS

    def abandon_the_lost(self) -> None:
        """Kill the last running runtimes if the ended ones have reported their hosts as lost: they may be paused."""
        running = {name for name, runtime in self._runtimes.items() if runtime.poll() is None}
        now = self._clock()
        if not running or len(running) == len(self._runtimes):
            self._alone_at = now
        if now - self._alone_at < CRASH_SECONDS:
            return
        self._alone_at = now
        reports = [self._report(name) for name in self._runtimes.keys() - running]
        lost = {
            report.host for report in reports if report and report.failure_class == FailureClass.HOST_LOST
        }
        if running <= lost:
            self._abandoned |= running
            for name in running:
                self._runtimes[name].abandon()

    def failure(self) -> FailureReport | None:
        """The report on which the hosts agreed; if there is none, a report of the lost host. Call it after all ended.

        The other hosts can only report that a host was lost, not why. Reports of hosts whose exit code shows no failure
        do not count, and neither do hosts that were lost after the end of the attempt was requested.
        """
        self.look()
        for name, runtime in self._runtimes.items():
            code = runtime.poll()
            is_stopped = code == INTERRUPTED and self._is_stopped
            report = None if code == 0 or is_stopped else self._report(name)
            if report is None:
                continue
            report = replace(report, exit_code=code) if code and code > 0 else report
            if report.failure_class != FailureClass.HOST_LOST:
                return report
            if self._lost or not self._is_ending():
                return self._lost or report
            self.lost_late.setdefault(report.host or name, report)
        return self._lost


def lost_report(name: str, code: int) -> FailureReport:
    """The report of a lost host if only the exit code of its runtime is known, which is negative for a signal."""
    ending = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    report = FailureReport.host_lost(name, f"its runtime {ending}: see job.log", time.time())
    return replace(report, exit_code=code) if code > 0 else report


def with_memory_kill(report: FailureReport, line: str) -> FailureReport:
    """``report``, changed to that of a process killed for its use of memory, as the scheduler's ``line`` reports."""
    return replace(
        report,
        failure_class=FailureClass.OUT_OF_MEMORY,
        message=f"it used more memory than it was allocated: {line}",
        hint="Ask for more memory, on Slurm with platform_options.mem or mem_per_gpu, or use a smaller batch or fewer "
        "workers of data loaders.",
        signal=SIGKILL,
        exit_code=128 + SIGKILL,
    )


def was_interrupted(report: FailureReport, code: int, *, by_keyboard: bool) -> bool:
    """Whether a rank failed because of the signal that ends the job rather than by itself.

    Args:
        code: the exit code of a process that the signal ends.
        by_keyboard: whether the signal is SIGINT, for which Python raises KeyboardInterrupt.
    """
    is_by_signal = code in (128 + (report.signal or 0), report.exit_code)
    return is_by_signal or (by_keyboard and report.exception_type == "KeyboardInterrupt")
