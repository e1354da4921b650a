"""The choice of the cause among the failures of a job, and the moment of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.diagnose.first_cause import CAUSE_SECONDS, SETTLE_SECONDS, Failures, with_ended_ranks


def failed(
    rank: int | None, time: float, message: str = "x", *, signal: int | None = None, kind: str = "E"
) -> FailureReport:
    return FailureReport(
        FailureClass.USER_ERROR,
        message,
        rank=rank,
        time=time,
        signal=signal,
        exit_code=128 + signal if signal else 1,
        exception_type=None if signal else kind,
    )


@pytest.mark.parametrize(
    ("reports", "cause"),
    [
        ([failed(0, 2), failed(1, 1)], 1),
        ([failed(0, 1, "Connection closed by peer"), failed(1, 2)], 1),
        ([failed(0, 1, "Connection reset by peer"), failed(1, 2, signal=9)], 1),
        ([failed(0, 1, signal=15), failed(1, 2)], 1),
        ([failed(0, 1, kind="HorovodInternalError"), failed(1, 2, signal=9)], 1),
        ([failed(0, 1, "connection refused"), failed(1, 2, "Broken pipe")], 0),
        ([failed(None, 1), failed(1, 2)], 1),
        ([failed(0, 2, "socket: address already in use"), failed(1, 1, "connection refused")], 0),
    ],
)
def test_the_cause_among_several(reports: list[FailureReport], cause: int) -> None:
    failures = Failures()
    for report in reports:
        failures.add(report)
    assert failures.cause().rank == cause


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_cause_is_decided_when_the_other_ranks_have_had_time_to_fail() -> None:
    clock = Clock()
    failures = Failures(clock)
    assert not failures.are_settling
    failures.add(failed(0, 1))
    clock.now += SETTLE_SECONDS - 0.1
    failures.add(failed(1, 2))
    assert (failures.are_settling, failures.are_settled) == (True, False)
    clock.now += 0.2
    assert failures.are_settled
    failures.excuse()
    assert not failures.are_settling
    assert not failures.are_settled


def test_a_rank_that_lost_another_one_waits_longer_for_the_cause() -> None:
    """NCCL ends the others immediately; the rank that failed first is still printing its traceback."""
    clock = Clock()
    failures = Failures(clock)
    failures.add(replace(failed(0, 1, signal=6), failure_class=FailureClass.COLLECTIVE_TIMEOUT))
    clock.now += 2 * SETTLE_SECONDS
    assert not failures.are_settled
    failures.add(failed(1, 2))
    assert not failures.are_settled
    clock.now += SETTLE_SECONDS
    assert failures.are_settled
    assert failures.cause().rank == 1


def test_a_rank_that_only_lost_another_one_is_reported_in_the_end() -> None:
    clock = Clock()
    failures = Failures(clock)
    failures.add(replace(failed(0, 1, signal=6), failure_class=FailureClass.COLLECTIVE_TIMEOUT))
    clock.now += CAUSE_SECONDS
    assert failures.are_settled
    assert failures.cause().rank == 0


def test_ranks_that_had_ended_are_named() -> None:
    lost = failed(0, 1, "Connection closed by peer")
    assert with_ended_ranks(lost, [1]).hint.startswith("Before this, rank 1 ended with exit code 0")
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8, ... ended" in with_ended_ranks(lost, range(9, 0, -1)).hint
    assert with_ended_ranks(lost, []) == lost
    own = failed(0, 1, "boom")
    assert with_ended_ranks(own, [1]) == own
