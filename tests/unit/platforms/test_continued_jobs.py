"""A job whose next attempt a scheduler starts: one supervisor after another continues the same record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from supervised_programs import NEW, run_programs

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.observe.events import read_events
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.supervise import SIGNAL

WAIT = "trap 'exit 143' TERM; while :; do sleep 0.02; done"
NOTICE = f"kill -USR1 $PPID; {WAIT}"
"""The scheduler says that the time limit is near, or that it needs the hosts."""
TERMINATE = f"kill -TERM $PPID; {WAIT}"
BUDGETS = {"max_preemptions": 2, "max_retry_attempts": 1}


@dataclass
class Queue:
    """A scheduler that only notes what it is asked to do."""

    folder: JobFolder
    is_preemption: bool = False
    is_late: bool = False
    """Whether it says only after it was asked that it takes the hosts back."""
    refuses: bool = False
    is_in_vain: bool = False
    spare: float = 0.0
    taken_back: FailureClass = FailureClass.PREEMPTED
    records: list[JobRecord] = field(default_factory=list)
    """The record at each request."""
    place: str = "job 7 on node-1"
    notice_seconds: float = 2.0

    def takes_back(self) -> bool:
        was_late, self.is_late = self.is_late, False
        return self.is_preemption and not was_late

    def end(self) -> None:
        """Nothing is left to do."""

    def cause(self) -> FailureClass:
        return self.taken_back

    def spare_seconds(self) -> float:
        return self.spare

    def check_next(self, cause: FailureClass) -> None:
        if self.is_in_vain:
            raise PlatformError("this attempt saved no checkpoint", hint="Save more often.")

    def start_next(self) -> str:
        if self.refuses:
            raise PlatformError("no command here submits jobs", hint="Do it by hand.")
        self.records.append(self.folder.read_record())
        return "requeued"


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(JobFolder(tmp_path))


def run(queue: Queue, leader: str, record: JobRecord = NEW, **request: object) -> JobRecord:
    commands = {"algo-1": leader, "algo-2": WAIT if "trap" in leader else leader}
    path = queue.folder.path
    return run_programs(path, commands, {}, record=record, continuation=queue, **{**BUDGETS, **request})[0]


def log(queue: Queue) -> list[str]:
    return [line.removeprefix("[cloudtrain] ") for line in queue.folder.log.read_text().splitlines()]


def test_the_next_submission_continues_the_record(queue: Queue) -> None:
    waiting = run(queue, NOTICE)
    assert queue.records == [waiting], "the record is pending before the scheduler ends this submission"
    assert (waiting.status, waiting.attempt, waiting.preemptions, waiting.retries) == ("Pending", 1, 1, 0)
    assert waiting.ran > 0
    assert waiting.ended_at is waiting.failure is waiting.pid is None

    ended = run(queue, "exit 0", waiting)
    assert (ended.status, ended.attempt, ended.preemptions) == (JobStatus.COMPLETED, 1, 1)
    assert ended.started_at == waiting.started_at
    assert len(queue.records) == 1
    assert log(queue) == [
        "preempted; waiting to restart, preemption 1 of 2",
        "requeued",
        "attempt 2: job 7 on node-1",
    ]


@pytest.mark.parametrize(("is_preemption", "is_late"), [(True, False), (True, True), (False, False)])
def test_what_a_signal_to_end_means(queue: Queue, is_preemption: bool, is_late: bool) -> None:
    queue.is_preemption, queue.is_late = is_preemption, is_late
    record = run(queue, TERMINATE)
    if is_preemption:
        assert (record.status, len(queue.records)) == (JobStatus.PENDING, 1)
    else:
        assert (record.status, record.reason, queue.records) == (JobStatus.INTERRUPTED, SIGNAL, [])


@pytest.mark.parametrize("is_preemption", [True, False])
def test_a_rank_that_got_the_signal_first(queue: Queue, is_preemption: bool) -> None:
    """A scheduler ends all processes of a job together: the death of a rank may be the first that is seen of it."""
    queue.is_preemption = is_preemption
    report = FailureReport(FailureClass.KILLED, "", rank=0, exit_code=143, signal=15)
    commands = {"algo-1": "exit 143", "algo-2": "exit 143"}
    record, _ = run_programs(
        queue.folder.path, commands, {"algo-1": report}, continuation=queue, max_preemptions=2
    )
    if is_preemption:
        assert (record.status, record.preemptions, record.retries) == (JobStatus.PENDING, 1, 0)
    else:
        assert (record.status, len(queue.records)) == (JobStatus.FAILED, 0)


def test_a_scheduler_that_ends_only_the_runtimes(queue: Queue) -> None:
    record = run(queue, "exit 143")
    assert (record.status, record.preemptions, len(queue.records)) == (JobStatus.PENDING, 1, 1)


def test_a_stop_is_not_taken_for_a_preemption(queue: Queue) -> None:
    queue.is_preemption = True
    record = run(queue, f"touch {queue.folder.stop_mark}; {TERMINATE}")
    assert (record.status, queue.records) == (JobStatus.STOPPED, [])


def test_a_submission_whose_host_was_lost(queue: Queue) -> None:
    now = time.time()
    lost = JobRecord(JobStatus.RUNNING, 1.0, 1, 4711, 2.0, preemptions=1, ran=5.0, resumed_at=now - 20)
    queue.folder.log.touch()  # the last that was seen of it
    record = run(queue, "exit 0", lost)
    assert (record.status, record.attempt, record.preemptions) == (JobStatus.COMPLETED, 2, 2)
    assert record.ran == pytest.approx(25, abs=2)
    first, second = log(queue)
    assert first == "interrupted without a notice; restarting, preemption 2 of 2"
    assert second == "attempt 3: job 7 on node-1"


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_last_preemption(queue: Queue, is_lost: bool) -> None:
    spent = replace(NEW, started_at=2.0, attempt=2, preemptions=2, resumed_at=3.0 if is_lost else None)
    record = run(queue, NOTICE, spent)
    assert (record.status, queue.records) == (JobStatus.INTERRUPTED, [])
    assert record.failure
    assert record.failure.failure_class == FailureClass.PREEMPTED
    assert "max_preemptions" in record.failure.message


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (FailureClass.TIME_LIMIT, "ended by the scheduler's time limit"),
        (FailureClass.HOST_LOST, "ended by the loss of a host"),
    ],
)
def test_the_report_has_the_reason_of_the_preemption(queue: Queue, cause: FailureClass, words: str) -> None:
    queue.taken_back = cause
    record = run(queue, NOTICE, max_preemptions=0)
    assert (record.status, record.reason) == (JobStatus.INTERRUPTED, words)
    assert record.failure
    assert record.failure.failure_class == cause
    assert record.failure.message == f"{words} more often than max_preemptions allows (0)"
    assert run(queue, NOTICE).status == JobStatus.PENDING
    assert log(queue)[-2] == f"{words}; waiting to restart, preemption 1 of 2"


def test_a_scheduler_that_cannot_start_the_job_again(queue: Queue) -> None:
    queue.refuses = True
    record = run(queue, NOTICE)
    assert record.status == JobStatus.INTERRUPTED
    assert record.failure
    assert record.failure.message == "preempted, and not restarted: no command here submits jobs"
    assert record.failure.hint == "Do it by hand."


def test_an_attempt_that_would_be_in_vain_is_not_made(queue: Queue) -> None:
    queue.is_in_vain, queue.taken_back = True, FailureClass.TIME_LIMIT
    record = run(queue, NOTICE)
    assert (record.status, record.preemptions, queue.records) == (JobStatus.INTERRUPTED, 0, [])
    assert record.failure and record.failure.failure_class == FailureClass.TIME_LIMIT
    assert "not restarted: this attempt saved no checkpoint" in record.failure.message
    assert record.failure.hint == "Save more often."


@pytest.mark.parametrize("spare", [0.2, 60.0])
def test_a_notice_that_arrives_too_early_counts_later(queue: Queue, spare: float) -> None:
    queue.spare = spare
    short = "trap 'exit 143' TERM; for i in 1 2 3 4 5; do sleep 0.3; done; exit 0"
    commands = {"algo-1": f"kill -USR1 $PPID; {short}", "algo-2": short}
    record, _ = run_programs(queue.folder.path, commands, {}, continuation=queue, **BUDGETS)
    assert record.status == (JobStatus.PENDING if spare < 1 else JobStatus.COMPLETED)


def test_a_failure_is_retried_on_the_same_hosts(queue: Queue, tmp_path: Path) -> None:
    commands = {"algo-1": "[ -e second ] && exit 0; touch second; exit 3", "algo-2": "exit 143"}
    reports = {"algo-1": FailureReport(FailureClass.USER_ERROR, "as asked", exit_code=3)}
    record, _ = run_programs(tmp_path, commands, reports, continuation=queue, **BUDGETS)
    assert (record.status, record.retries, record.preemptions) == (JobStatus.PENDING, 1, 1)
    assert record.attempt == 2


@pytest.mark.parametrize("ran", [0.0, 3599.0])
def test_max_run_counts_all_submissions(queue: Queue, ran: float) -> None:
    record = run(queue, NOTICE, replace(NEW, ran=ran))
    if ran:
        assert (record.status, record.reason) == (JobStatus.STOPPED, "max_run of 3600 s is over")
    else:
        assert record.status == JobStatus.PENDING


def test_without_max_run_only_the_scheduler_limits_the_time(queue: Queue) -> None:
    assert run(queue, NOTICE, replace(NEW, ran=30 * 86400.0), max_run=None).status == JobStatus.PENDING


def test_time_in_the_queue_between_attempts_is_lost_to_the_queue(queue: Queue) -> None:
    waiting = run(queue, NOTICE)
    time.sleep(0.5)
    run(queue, "sleep 0.2; exit 0", waiting, environment={})
    [goodput] = [event for event in read_events(queue.folder.events) if event["event"] == "goodput"]
    queued = waiting.started_at - waiting.submitted_at if waiting.started_at else 0
    assert goodput["lost"]["queue"] == pytest.approx(queued + 30.3, abs=30)
