"""Whether a job restarts, by the cause of its end and by how far it got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.runtime.assignment import assign
from cloudtrain.runtime.supervisor.places import moved, place_details
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.restarts import Decision, decide

REQUEST: dict[str, Any] = {"settings": {}, "max_retry_attempts": 2, "max_preemptions": 1}
NEW = JobRecord(JobStatus.RUNNING, submitted_at=1.0)
TRACE = 'Traceback\n  File "/run/{}/train.py", line 8, in step\n    x\n  File "/x/site-packages/t/f.py", line 9, in f'

CAUSE = "urllib3.exceptions.ReadTimeoutError: 503"
CHAINED = f"{TRACE}\n{CAUSE}\n\nThe above exception was the cause\n\n{TRACE}\nDatasetError: x"

End = tuple[FailureReport | None, int | None]
"""Why an attempt ended, and its last step."""


def raised(exception: str, attempt: int = 0, message: str = "", **fields: Any) -> FailureReport:
    report = FailureReport(FailureClass.USER_ERROR, message, rank=0, exception_type=exception)
    return replace(report, traceback=TRACE.format(attempt), **fields)


KILLED = FailureReport(FailureClass.KILLED, "", rank=0, exit_code=137, signal=9)
LOST = FailureReport.host_lost("algo-2", "gone", 1.0)
HANG = FailureReport(FailureClass.HANG, "", rank=1)


def last_of(ends: Sequence[End], request: dict[str, Any] = REQUEST) -> tuple[int, Decision]:
    """How many of these attempts a job makes, and the decision after the last of them."""
    record = NEW
    for number, (failure, step) in enumerate(ends, 1):
        decision = decide(record, failure, step, request)
        if not decision.restarts:
            return number, decision
        record = decision.budget.spend(decision.record)
    return len(ends), decision


def test_the_same_exception_after_the_same_step_ends_the_job() -> None:
    number, end = last_of([(raised("KeyError", attempt), 12) for attempt in range(9)])
    assert (number, end.repeats) == (
        2,
        "the same failure happened twice after step 12: KeyError in f at train.py:8",
    )
    number, end = last_of([(raised("KeyError", message=f"no key {n} of 0x{n}f"), None) for n in range(9)])
    assert number == 2
    assert (
        end.repeats
        == "the same failure happened twice before the first step: KeyError in f at train.py:8: no key # of #"
    )


@pytest.mark.parametrize(
    "ends",
    [
        [(raised("KeyError"), 12), (raised("KeyError"), 11)],
        [(raised("KeyError"), 12), (raised("ValueError"), 12)],
        [(raised("KeyError"), 12), (replace(raised("KeyError"), traceback=TRACE.replace("8", "9")), 12)],
        [(raised("KeyError", message="a"), None), (raised("KeyError", message="b"), None)],
        [(raised("ConnectionResetError"), 12)] * 2,
        [(raised("ReadTimeout"), 12)] * 2,
        [(raised("OSError", message="[Errno 5] Input/output error"), 12)] * 2,
        [(raised("RuntimeError", message="Connection closed by peer"), 12)] * 2,
        [(raised("KeyError", failure_class=FailureClass.STORAGE), 12)] * 2,
        [(raised("RuntimeError", message="DataLoader worker (pid 7) is killed by signal: Bus error."), 12)]
        * 2,
        [(raised("LocalEntryNotFoundError", message="we couldn't connect to the Hub"), None)] * 2,
        [(replace(raised("DatasetError"), traceback=CHAINED), 12)] * 2,
        [(KILLED, 12)] * 2,
        [(LOST, 12)] * 2,
        [(HANG, 12)] * 2,
        [(replace(raised("KeyError"), traceback=""), 12)] * 2,
    ],
)
def test_what_may_succeed_next_time_is_tried_again(ends: list[End]) -> None:
    assert last_of(ends)[1].restarts
    assert not last_of(ends * 2)[1].repeats


def test_a_preemption_in_between_does_not_hide_a_failure_that_repeats() -> None:
    bug = raised("KeyError"), 12
    assert last_of([bug, (None, 12), bug])[1].repeats


def test_each_kind_of_cause_has_its_own_budget() -> None:
    every = [(KILLED, 3), (LOST, 3), (HANG, 3)] * 2
    assert last_of([*every, (None, 3)])[1].restarts
    for failure in (KILLED, LOST, HANG, replace(LOST, failure_class=FailureClass.GPU_FAULT)):
        number, end = last_of([*every, (failure, 3)])
        assert (number, end.restarts, end.repeats) == (7, False, "")
    assert not last_of([*every, (None, 3), (None, 3)])[1].restarts


def test_progress_refills_the_budgets_and_repeated_steps_do_not() -> None:
    assert last_of([(KILLED, step) for step in range(100)])[0] == 100
    assert last_of([(None, step) for step in range(100)])[0] == 100
    number, end = last_of([(KILLED, step) for step in (50, 40, 49, 50, 51)])
    assert (number, end.restarts) == (3, False)
    assert last_of([(KILLED, step) for step in (50, 40, 51, 48, 50)])[1].restarts is False
    assert last_of([(KILLED, step) for step in (50, 40, 51, 48)])[1].restarts


def test_a_bug_after_every_step_does_not_restart_the_job_forever() -> None:
    assert last_of([(raised("KeyError", step), step) for step in range(100)])[0] == 3
    others = [raised("KeyError"), raised("ValueError")]
    assert last_of([(others[step % 2], step) for step in range(100)])[0] == 100
    assert last_of([(raised("ConnectionError"), step) for step in range(100)])[0] == 100


@pytest.mark.parametrize("failure_class", [FailureClass.SYNTAX_ERROR, FailureClass.UPLOAD])
def test_what_never_helps_is_not_tried(failure_class: FailureClass) -> None:
    assert last_of([(replace(KILLED, failure_class=failure_class), 3)])[1].restarts is False


def test_a_hang_that_is_to_stop_the_job_does() -> None:
    stops = {**REQUEST, "settings": {"on_hang": "stop"}}
    assert last_of([(HANG, 3)], stops)[1].restarts is False
    assert last_of([(KILLED, 3)], stops)[1].restarts


def test_the_record_keeps_what_the_next_decision_needs() -> None:
    record = decide(NEW, raised("KeyError"), 12, REQUEST).record
    kept = JobRecord.from_json(record.to_json())
    assert kept == record
    assert decide(kept, raised("KeyError"), 12, REQUEST).repeats


SPARE = {**REQUEST, "max_retry_attempts": 0, "spare_hosts": 2}
WAITING = replace(NEW, hosts=("a", "algo-2"), spares=("c", "d"))


def test_a_spare_host_takes_the_place_of_a_lost_one_without_a_retry() -> None:
    decision = decide(WAITING, LOST, 3, SPARE, ["c", "d"])
    assert (decision.restarts, decision.lost) == (True, ("algo-2",))
    record = decision.budget.spend(decision.record)
    assert (record.takeovers, record.host_losses, record.left_out) == (1, 0, ("algo-2",))
    assert decision.budget.describe(record, SPARE) == "spare host 1 of 2"
    assert assign(["a", "algo-2", "c", "d"], 2, record.left_out) == (["a", "c"], ["d"])


def test_a_spare_that_is_gone_gets_no_place() -> None:
    decision = decide(WAITING, LOST, 3, SPARE, ["d"])
    assert assign(["a", "algo-2", "c", "d"], 2, decision.record.left_out) == (["a", "d"], [])
    assert not decide(WAITING, LOST, 3, SPARE).restarts


def test_places_do_not_move() -> None:
    everyone = ["a", "b", "c", "d", "e"]
    assert assign(everyone, 3, ["c"]) == (["a", "b", "d"], ["e"])
    assert assign(everyone, 3, ["c", "a"]) == (["e", "b", "d"], [])
    assert assign(everyone, 3, ["c", "a", "b"]) == (["e", "b", "d"], []), "as without spare hosts"


def test_a_host_that_failed_twice_is_left_out_where_there_is_another() -> None:
    killed = replace(KILLED, host="algo-2")
    request = {**SPARE, "max_retry_attempts": 2}
    first = decide(WAITING, killed, None, request, ["c"])
    assert (first.restarts, first.lost) == (True, ())
    other = decide(first.record, replace(KILLED, host="a"), None, request, ["c"])
    assert other.lost == ()
    second = decide(other.record, killed, None, request, ["c"])
    assert (second.restarts, second.lost, second.budget.name) == (True, ("algo-2",), "retry")
    assert decide(other.record, killed, None, request).lost == ()
    raised_there = replace(raised("KeyError"), host="algo-2")
    assert decide(first.record, raised_there, None, request, ["c"]).lost == (), "the script, not the host"


def test_a_spare_host_takes_the_place_of_one_that_is_reclaimed() -> None:
    move = decide(WAITING, None, 3, SPARE, ["c", "d"], {"algo-2"})
    assert (move.restarts, move.lost, move.budget.name) == (True, ("algo-2",), "spare host")
    assert assign(["a", "algo-2", "c", "d"], 2, move.record.left_out) == (["a", "c"], ["d"])
    both = decide(WAITING, None, 3, SPARE, ["d"], {"a", "algo-2"})
    assert (both.lost, both.budget.name) == ((), "preemption")


def test_hosts_that_cannot_lose_their_places_are_not_named() -> None:
    assert moved(NEW, ["algo-1", "algo-2"]) == (NEW, "")


FEWER = {**REQUEST, "max_retry_attempts": 0, "max_preemptions": 0, "min_instance_count": 2}
THREE = replace(NEW, hosts=("a", "algo-2", "c"))


@pytest.mark.parametrize("failure", [LOST, replace(LOST, failure_class=FailureClass.GPU_FAULT), None])
def test_a_job_continues_without_a_host_down_to_the_minimum(failure: FailureReport | None) -> None:
    fewer = decide(THREE, failure, 3, FEWER, reclaimed=() if failure else {"algo-2"})
    assert (fewer.restarts, fewer.lost, fewer.record.dropped) == (True, ("algo-2",), ("algo-2",))
    record = fewer.budget.spend(fewer.record)
    assert (record.attempt, record.host_losses, record.preemptions) == (1, 0, 0)
    names, _ = assign(THREE.hosts, 3, record.left_out, record.dropped)
    assert moved(record, names) == (record, "without algo-2, a, c are left")
    assert place_details(record) == {"dropped hosts": "algo-2"}
    assert JobRecord.from_json(record.to_json()) == record
    left = replace(record, hosts=tuple(names))
    more = replace(failure, host="c") if failure else None
    end = decide(left, more, 9, FEWER, reclaimed=() if more else {"c"})
    assert (end.restarts, end.lost, end.record.dropped) == (False, (), ("algo-2",))


def test_hosts_that_are_reclaimed_together_are_dropped_together_or_not_at_all() -> None:
    one = {**FEWER, "min_instance_count": 1}
    assert decide(THREE, None, 3, one, reclaimed={"c", "a"}).record.dropped == ("a", "c")
    assert not decide(THREE, None, 3, FEWER, reclaimed={"c", "a"}).restarts
    again = decide(THREE, None, 3, {**one, "max_preemptions": 1}, reclaimed={"a", "algo-2", "c"})
    assert (again.restarts, again.budget.name, again.record.dropped) == (True, "preemption", ())


def test_spare_hosts_take_places_before_the_job_continues_with_fewer_hosts() -> None:
    record = replace(THREE, spares=("d",))
    mixed = decide(record, None, 3, FEWER, ["d"], {"a", "c"})
    assert (mixed.record.left_out, mixed.record.dropped) == (("a",), ("c",))
    names, spares = assign(["a", "algo-2", "c", "d"], 3, mixed.record.left_out, mixed.record.dropped)
    assert (names, spares) == (["d", "algo-2"], [])
    taken, words = moved(mixed.record, names)
    assert words == "d takes the place of a; without c, d, algo-2 are left"
    assert taken.taken == ("d takes the place of a",)
    replaced = decide(record, LOST, 3, FEWER, ["d"])
    assert (replaced.record.left_out, replaced.record.dropped) == (("algo-2",), ())


def test_a_host_that_got_its_place_back_can_be_dropped() -> None:
    everyone = ["a", "algo-2", "c", "d"]
    back = replace(THREE, left_out=("algo-2", "d"))  # the spare host d was lost in its place
    assert assign(everyone, 3, back.left_out) == (["a", "algo-2", "c"], [])
    again = decide(back, LOST, 3, FEWER)
    assert (again.restarts, again.lost) == (True, ("algo-2",))
    assert assign(everyone, 3, again.record.left_out, again.record.dropped) == (["a", "c"], [])


def test_a_rank_that_is_killed_twice_does_not_shrink_the_world() -> None:
    killed = replace(KILLED, host="algo-2")
    request = {**FEWER, "max_retry_attempts": 9}
    second = decide(decide(THREE, killed, 3, request).record, killed, 3, request)
    assert (second.restarts, second.lost, second.record.dropped) == (True, (), ())
