"""How often Slurm is asked, and what counts if it does not answer. Its commands are programs that print what was
recorded.
"""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from slurm_texts import (
    HEADER,
    NO_ACCOUNTING,
    NO_CONTROLLER,
    NO_ELEMENT,
    NO_JOB,
    SACCT,
    SCONTROL,
    SQUEUE,
    Programs,
)

from cloudtrain.platforms.batch.queue import MOST_ABSENCES
from cloudtrain.platforms.batch.shell import LocalShell
from cloudtrain.platforms.slurm.queue import Queue
from cloudtrain.platforms.slurm.squeue import MOST_AT_ONCE

LONG_AGO = 1795390000.0


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    programs = Programs(tmp_path / "bin")
    programs.says("squeue", SQUEUE)
    programs.says("sacct", SACCT)
    programs.says("scontrol", SCONTROL)
    return programs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queues" / "queue.json"


def queue_of(programs: Programs, file: Path | None = None, poll_seconds: float = 60.0) -> Queue:
    return Queue(LocalShell(programs.environ), file, poll_seconds=poll_seconds)


def test_one_call_for_all_jobs_of_all_processes(programs: Programs, file: Path) -> None:
    queues = [queue_of(programs, file) for _ in range(3)]
    found: list[bool] = []

    def watch(queue: Queue) -> None:
        found.extend(queue.look(number, LONG_AGO).is_alive for number in ("1", "2", "3", "6_0"))

    threads = [threading.Thread(target=watch, args=(queue,)) for queue in queues for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 36
    assert len(programs.calls()) == 1
    queues[0].expire()
    queues[0].look("1", LONG_AGO)
    assert len(programs.calls()) == 2


def test_jobs_that_left_are_looked_up_once_together(programs: Programs, file: Path) -> None:
    queue = queue_of(programs, file)
    for number in ("1", "14", "12", "21"):  # two have left the queue
        queue._watched.add(number)
    assert [queue.look(number, LONG_AGO).is_alive for number in ("14", "12", "21", "1")] == [False] * 3 + [
        True
    ]
    assert queue.ending("12") == queue.ending("12") is not None
    [call] = programs.calls("sacct")
    assert "--jobs=12,13,14,15,18,21" in call  # and those that another process may ask for
    assert programs.calls("scontrol") == []


def test_more_jobs_that_left_than_one_command_takes(programs: Programs) -> None:
    programs.says("squeue", HEADER)
    programs.says("sacct")
    programs.says("scontrol", error=NO_JOB, code=1)
    queue = queue_of(programs)
    numbers = [f"{number}" for number in range(1000, 1000 + MOST_AT_ONCE + 2)]
    queue._watched.update(numbers)
    assert not queue.look(numbers[0], LONG_AGO).is_alive
    row = "21|PREEMPTED|0:0|1795390750|01:00:00|127.0.0.2|a-job|/jobs/a-job|None\n"
    programs.says("sacct", row.replace("21", numbers[-1], 1))
    ending = queue.ending(numbers[-1])
    assert ending and ending.state == "PREEMPTED"
    assert queue.ending(numbers[1]) is None
    asked = [call.rpartition("--jobs=")[2].split(",") for call in programs.calls("sacct")]
    assert [len(jobs) for jobs in asked] == [MOST_AT_ONCE, 2]


def test_without_accounting_the_controller_or_the_row_counts(programs: Programs) -> None:
    programs.says("sacct", error=NO_ACCOUNTING, code=1)
    queue = queue_of(programs)
    assert not queue.look("14", LONG_AGO).is_alive
    ending = queue.ending("14")
    assert ending and ending.limit == "00:01:00"
    programs.says("scontrol", error=NO_JOB, code=1)
    ending = queue.ending("18")
    assert ending and (ending.state, ending.ended_at) == ("TIMEOUT", 1795390750.0)
    assert not queue.look("99", LONG_AGO).is_alive
    assert queue.ending("99") is None
    assert len(programs.calls("sacct")) == 1


def test_the_accounting_may_be_late(programs: Programs) -> None:
    programs.says(
        "sacct",
        "14|RUNNING|0:0|Unknown|01:00:00|n1|a-job|/jobs/a-job|None\n98|PENDING|0:0|Unknown|01:00:00|n1|a-job|/jobs/a-job|None\n",
    )
    programs.says("scontrol", error=NO_JOB, code=1)
    queue = queue_of(programs)
    assert not queue.look("14", LONG_AGO).is_alive
    ending = queue.ending("14")
    assert ending and ending.state == "FAILED"
    assert queue.look("98", LONG_AGO).is_alive


def test_a_job_submitted_after_the_last_answer_is_queried(programs: Programs, file: Path) -> None:
    queue_of(programs, file).look("1", LONG_AGO)
    since = time.time()
    programs.says("squeue", SQUEUE + "97|N/A|PENDING|N/A|N/A|1795390854|7|main|1||a-job|/jobs/a-job|None\n")
    for _ in range(3):  # each a command
        assert queue_of(programs, file).look("97", since).row
    ahead = queue_of(programs, file).look("98", since + 60)  # by another clock
    assert ahead.is_alive
    assert programs.calls("sacct") == []
    assert len(programs.calls("squeue")) == 2


def test_unknown_is_not_ended(programs: Programs, file: Path) -> None:
    programs.says("squeue", error=NO_CONTROLLER, code=1)
    queue = queue_of(programs, file)
    assert queue.look("99", LONG_AGO).is_alive
    words = "(Unable to contact slurm controller (connect failure))"
    assert queue.silence.startswith("Slurm has not answered since")
    assert queue.silence.endswith(words)
    assert queue_of(programs, file).look("14", LONG_AGO).is_alive
    assert len(programs.calls()) == 1  # other processes wait, too


@pytest.mark.parametrize("code", [0, 1], ids=["answers", "fails"])
def test_a_slow_scheduler_is_not_queried_again_immediately(
    programs: Programs, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause begins with the answer: else every look at a job would take as long as the first."""
    programs.says(
        "squeue", SQUEUE, "squeue: error: Socket timed out on send/recv operation" if code else "", code
    )
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 30 * len(programs.calls("squeue")))
    queue = queue_of(programs, poll_seconds=20 if code == 0 else 10)
    for number in ("1", "2", "3"):
        assert queue.look(number, LONG_AGO).is_alive
    assert len(programs.calls("squeue")) == 1


def test_what_the_machine_prints_is_not_an_error_of_slurm(programs: Programs) -> None:
    noise = "ERROR: ld.so: object 'libtrace.so' from LD_PRELOAD cannot be preloaded: ignored."
    programs.says("squeue", SQUEUE, noise)
    queue = queue_of(programs)
    assert queue.look("1", LONG_AGO).row
    assert not queue.look("14", LONG_AGO).is_alive
    assert not queue.silence


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (HEADER, "squeue: error: Invalid user: 1000"),
        ("", ""),
        (HEADER + "1|N/A|RUNN", ""),
        ("no table\n", ""),
    ],
    ids=["error", "nothing", "a-part", "text"],
)
def test_only_a_whole_table_is_an_answer(programs: Programs, out: str, error: str) -> None:
    """A name service that is away: ``squeue`` prints an error, and exits with code 0."""
    programs.says("squeue", out, error)
    queue = queue_of(programs)
    assert queue.look("1", LONG_AGO).is_alive
    assert (error.removeprefix("squeue: error: ") or "no table") in queue.silence
    assert len(programs.calls()) == 1


RUNNING = "1|RUNNING|0:0|Unknown|01:00:00|n1|a-job|/jobs/a-job|None\n"
RUNS = SCONTROL.replace("NODE_FAIL", "RUNNING")


@pytest.mark.parametrize(
    ("sacct", "scontrol", "answers"),
    [
        ({"out": RUNNING}, {"out": RUNS}, None),
        ({"error": NO_ACCOUNTING, "code": 1}, {"out": RUNS}, None),
        ({"out": RUNNING}, {"error": NO_CONTROLLER, "code": 1}, None),
        ({"error": NO_ACCOUNTING, "code": 1}, {"error": NO_CONTROLLER, "code": 1}, None),
        ({"error": "a database", "code": 1}, {"error": NO_CONTROLLER, "code": 1}, None),
        ({"out": RUNNING}, {"error": NO_JOB, "code": 1}, 6),  # the accounting has missed the end
        ({"error": "a database", "code": 1}, {"error": NO_JOB, "code": 1}, 6),
        ({"error": NO_ACCOUNTING, "code": 1}, {"error": "not found", "code": 127}, 6),
        ({"error": NO_ACCOUNTING, "code": 1}, {"error": NO_JOB, "code": 1}, 1),
        ({"error": NO_ACCOUNTING, "code": 1}, {"out": NO_ELEMENT, "code": 1}, 1),
    ],
)
def test_a_job_that_the_queue_leaves_out_has_ended_only_if_slurm_confirms_it(
    programs: Programs, sacct: dict[str, Any], scontrol: dict[str, Any], answers: int | None
) -> None:
    programs.says("squeue", HEADER)
    programs.says("sacct", **sacct)
    programs.says("scontrol", **scontrol)
    queue = queue_of(programs)
    for answer in range(1, 10):
        is_alive = queue.look("1", LONG_AGO).is_alive
        assert is_alive == (answers is None or answer < answers), answer
        queue.expire()


@pytest.mark.parametrize("source", ["squeue", "scontrol"])
def test_absences_before_a_job_was_seen_again_do_not_count(programs: Programs, source: str) -> None:
    programs.says("sacct", error="a database", code=1)
    queue = queue_of(programs)
    for answer in range(1, 20):
        is_seen = answer % MOST_ABSENCES == 0
        programs.says("squeue", SQUEUE if is_seen and source == "squeue" else HEADER)
        programs.says("scontrol", *((RUNS,) if is_seen and source == "scontrol" else ("", NO_JOB, 1)))
        assert queue.look("1", LONG_AGO).is_alive, answer
        queue.expire()


def test_a_controller_that_restarts_changes_nothing(programs: Programs) -> None:
    queue = queue_of(programs, poll_seconds=0.01)
    assert queue.look("1", LONG_AGO).row
    programs.says("squeue", error=NO_CONTROLLER, code=1)
    time.sleep(0.02)
    began = time.monotonic()
    for _ in range(50):
        standing = queue.look("1", LONG_AGO)
        assert standing.is_alive
        assert standing.row
        assert queue.look("99", LONG_AGO).is_alive
        time.sleep(0.01)
    # the pause doubles: 0.01 s becomes a second after 7 calls
    assert len(programs.calls("squeue")) < 4 + math.log2((time.monotonic() - began) / 0.01)
    assert queue.silence == ""  # it is away for a moment only
    programs.says("squeue", SQUEUE)
    while queue._snapshot.failures:
        queue.look("1", LONG_AGO)
    assert queue.silence == ""


def test_places_count_as_a_second_call(
    programs: Programs, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    queue = queue_of(programs, file, poll_seconds=60)
    programs.says("squeue", SQUEUE)
    assert queue.place("2") is None  # the recorded text is not the order of the queue
    assert len(programs.calls("squeue")) == 2
    now += 61
    queue.look("2", LONG_AGO)
    assert len(programs.calls("squeue")) == 2
    now += 61
    queue.look("2", LONG_AGO)
    assert len(programs.calls("squeue")) == 3


def test_a_damaged_file_counts_as_missing(programs: Programs, file: Path) -> None:
    file.parent.mkdir()
    for content in (b"", b"\xff\n{}", b"[]"):
        file.write_bytes(content)
        assert queue_of(programs, file).look("1", LONG_AGO).row
    file.unlink()
    file.mkdir()
    assert queue_of(programs, file).look("1", LONG_AGO).row
