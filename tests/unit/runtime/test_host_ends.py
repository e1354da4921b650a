"""Why an attempt failed, by the ends of its runtimes as the supervisor sees them."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace

import pytest

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.diagnose.first_cause import CRASH_SECONDS, HostEnds, was_interrupted, with_memory_kill

CAUSE = FailureReport(FailureClass.USER_ERROR, "boom", rank=1, host="algo-2", exit_code=1)
LOST_PEER = FailureReport.host_lost("algo-2", "its connection was closed", 1.0)
FULL = FailureReport(FailureClass.DISK_FULL, "algo-2: No space left on device", host="algo-2")


@dataclass
class Runtime:
    """The runtime of a host, which ends when the test sets a code."""

    code: int | None = None
    evidence: FailureReport | None = None

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        """It ends when the test says so."""

    def abandon(self) -> None:
        self.code = -signal.SIGKILL

    def lost(self, name: str) -> FailureReport | None:
        return self.evidence


@dataclass
class Attempt:
    """Two hosts, with a clock that a test sets."""

    now: float = 100.0
    is_ending: bool = False
    runtimes: dict[str, Runtime] = field(default_factory=lambda: {"algo-1": Runtime(), "algo-2": Runtime()})
    reports: dict[str, FailureReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ends = HostEnds(
            self.runtimes, self.reports.get, lambda: self.is_ending, host_timeout=5.0, clock=lambda: self.now
        )

    def end(self, first: int | None, second: int | None) -> None:
        self.runtimes["algo-1"].code, self.runtimes["algo-2"].code = first, second
        self.ends.look()


@pytest.fixture
def attempt() -> Attempt:
    return Attempt()


def test_an_attempt_that_completed_has_no_failure(attempt: Attempt) -> None:
    attempt.end(0, None)
    assert attempt.ends.are_running
    attempt.end(0, 0)
    assert (attempt.ends.are_running, attempt.ends.are_completed) == (False, True)
    assert attempt.ends.failure() is None


def test_the_report_of_the_hosts_precedes_the_loss_of_one(attempt: Attempt) -> None:
    attempt.end(None, 1)
    attempt.reports["algo-2"] = CAUSE  # a shared folder showed it late
    attempt.end(143, 1)
    assert attempt.ends.failure() == CAUSE


def test_the_exit_code_is_that_of_the_runtime(attempt: Attempt) -> None:
    attempt.reports["algo-2"] = CAUSE
    attempt.end(143, 7)
    assert attempt.ends.failure() == replace(CAUSE, exit_code=7)


@pytest.mark.parametrize(
    ("code", "message", "exit_code"),
    [(-9, "its runtime was killed by SIGKILL", 1), (3, "its runtime exited with code 3", 3)],
)
def test_a_lost_host_is_described_by_its_end_and_not_by_the_others(
    attempt: Attempt, code: int, message: str, exit_code: int
) -> None:
    attempt.reports["algo-1"] = LOST_PEER
    attempt.end(None, code)
    attempt.end(1, code)
    failure = attempt.ends.failure()
    assert failure is not None
    assert failure.message == f"host algo-2 was lost: {message}: see job.log"
    assert (failure.failure_class, failure.host) == (FailureClass.HOST_LOST, "algo-2")
    assert failure.exit_code == exit_code


@pytest.mark.parametrize("paused", ["algo-1", "algo-2"])
def test_a_runtime_that_the_others_have_lost_is_not_waited_for(attempt: Attempt, paused: str) -> None:
    """Such as that of a paused machine. Also the leader's."""
    [other] = {"algo-1", "algo-2"} - {paused}
    attempt.reports[other] = replace(LOST_PEER, host=paused)
    attempt.runtimes[other].code = 1
    for seconds in (0.0, CRASH_SECONDS - 0.1, 0.2):
        attempt.now += seconds
        assert attempt.ends.are_running
        attempt.ends.abandon_the_lost()
    assert not attempt.ends.are_running
    assert attempt.ends.failure() == attempt.reports[other]


def test_a_runtime_that_is_late_is_waited_for(attempt: Attempt) -> None:
    attempt.reports["algo-2"] = CAUSE
    attempt.runtimes["algo-2"].code = 1
    for _ in range(9):
        attempt.now += CRASH_SECONDS
        attempt.ends.abandon_the_lost()
    assert attempt.ends.are_running


def test_evidence_of_the_carrier_explains_a_lost_host(attempt: Attempt) -> None:
    attempt.runtimes["algo-2"].evidence = FULL
    attempt.end(None, 255)
    attempt.end(143, 255)
    assert attempt.ends.failure() == FULL


def test_the_first_of_two_lost_hosts_is_the_cause(attempt: Attempt) -> None:
    attempt.end(-9, -9)
    failure = attempt.ends.failure()
    assert failure is not None
    assert failure.host == "algo-1"


def test_a_host_that_is_lost_while_the_job_ends_does_not_fail_it(attempt: Attempt) -> None:
    attempt.is_ending = True
    attempt.end(143, -11)
    assert attempt.ends.failure() is None
    assert list(attempt.ends.lost_late) == ["algo-2"]


@pytest.mark.parametrize("number", [15, 9])
def test_a_runtime_that_the_supervisor_ended_is_not_lost(attempt: Attempt, number: int) -> None:
    attempt.ends.send_signal(number)
    attempt.end(143, -number)
    assert (attempt.ends.failure(), attempt.ends.lost_late) == (None, {})


def test_hosts_wait_in_vain_for_one_that_is_lost(attempt: Attempt) -> None:
    attempt.end(None, -9)
    assert not attempt.ends.wait_in_vain
    attempt.now += CRASH_SECONDS + 0.1
    assert attempt.ends.wait_in_vain


def test_hosts_wait_in_vain_for_a_leader_that_failed_before_it_listened(attempt: Attempt) -> None:
    attempt.reports["algo-1"] = CAUSE
    attempt.end(1, None)
    assert not attempt.ends.wait_in_vain
    attempt.now += CRASH_SECONDS + 0.1
    assert not attempt.ends.wait_in_vain, "they may take host_timeout longer"
    attempt.now += 5.0
    assert attempt.ends.wait_in_vain


def test_a_memory_kill_of_the_scheduler_is_the_cause_of_a_killed_rank() -> None:
    killed = FailureReport(FailureClass.KILLED, "", rank=3, host="n1", exit_code=137, signal=9)
    found = with_memory_kill(killed, "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0")
    assert (found.failure_class, found.rank, found.exit_code) == (FailureClass.OUT_OF_MEMORY, 3, 137)
    assert "oom_kill event" in found.message


@pytest.mark.parametrize(
    ("report", "code", "by_keyboard", "interrupted"),
    [
        (replace(CAUSE, signal=2, exit_code=130), 130, True, True),
        (replace(CAUSE, exception_type="KeyboardInterrupt"), 130, True, True),
        (replace(CAUSE, exception_type="KeyboardInterrupt"), 129, False, False),
        (replace(CAUSE, exit_code=129), 129, False, True),
        (CAUSE, 130, True, False),
    ],
)
def test_a_rank_that_the_signal_of_the_job_ended_did_not_fail(
    report: FailureReport, code: int, by_keyboard: bool, interrupted: bool
) -> None:
    assert was_interrupted(report, code, by_keyboard=by_keyboard) == interrupted
