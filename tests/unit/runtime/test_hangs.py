"""The watchdog of a host, and the rank that the leader blames for a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass, FailureReport, RankSlot
from cloudtrain.observe import heartbeat
from cloudtrain.runtime.diagnose.hangs import Hang, Position, Watchdog, cause_first, places_in, site_of
from cloudtrain.runtime.diagnose.tracers import Frame
from cloudtrain.runtime.run_folder import heartbeat_path

BEATS = """
from cloudtrain.observe.heartbeat import beat, enter_collective, leave_collective
for call in {calls}:
    call()
"""


@pytest.fixture
def run(tmp_path: Path) -> str:
    for local in (0, 1):
        heartbeat.create(heartbeat_path(str(tmp_path), local))
    return str(tmp_path)


def slots() -> list[RankSlot]:
    return RankSlot.on_host(0, 1, 2)


def rank(run: str, local: int, calls: str) -> None:
    """Run a rank that makes calls and ends."""
    environ = {**os.environ, heartbeat.VARIABLE: heartbeat_path(run, local)}
    subprocess.run([sys.executable, "-c", BEATS.format(calls=f"[{calls}]")], env=environ, check=True)


def check(watchdog: Watchdog) -> FailureReport | None:
    return watchdog.check("algo-1", (), lambda rank: [f"line of rank {rank}"])


class Clock:
    """The clock of the heartbeats, which a test sets ahead."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def test_time_counts_from_the_first_heartbeat(run: str) -> None:
    clock = Clock()
    watchdog = Watchdog(run, slots(), 60.0, clock)
    clock.ahead = 90.0
    assert check(watchdog) is None  # both ranks load their data
    rank(run, 0, "enter_collective")
    clock.ahead = 0.0
    assert check(watchdog) is None
    for clock.ahead in range(2, 64, 2):
        report = check(watchdog)
    assert report
    assert (report.failure_class, report.rank, report.log_tail) == (
        FailureClass.HANG,
        1,
        ("line of rank 1",),
    )
    assert report.message.endswith("while rank 0 waits for it in a collective")


def test_a_paused_host_gives_its_ranks_fresh_time(run: str) -> None:
    clock = Clock()
    watchdog = Watchdog(run, slots(), 60.0, clock)
    rank(run, 0, "beat")
    assert check(watchdog) is None
    clock.ahead = 100.0  # the watchdog itself does not run
    assert check(watchdog) is None
    for clock.ahead in range(102, 164, 2):
        report = check(watchdog)
    assert report is not None


def test_a_step_of_the_wall_clock_is_not_silence(run: str) -> None:
    rank(run, 0, "beat")
    os.utime(heartbeat_path(run, 0), (0, 0))
    assert check(Watchdog(run, slots()[:1], limit=5)) is None


def test_the_watchdog_is_off_without_a_limit(run: str) -> None:
    rank(run, 0, "beat")
    assert check(Watchdog(run, slots(), limit=0)) is None


WAITS = Position(rank=0, entered=6, waits=True, silence=9)


@pytest.mark.parametrize(
    ("other", "blamed", "message"),
    [
        (
            Position(1, 0, False, 30),
            1,
            "for 30 s (hang_timeout is 5 s), while rank 0 waits for it in a collective",
        ),
        (Position(1, 5, False, 9.5), 1, "while rank 0 waits for it in a collective"),
        (Position(1, 5, True, 9), 1, "it waits in collective 5, rank 0 in a later one"),
        (Position(1, 7, True, 9), 0, "it waits in collective 6, rank 1 in a later one"),
        (Position(1, 6, True, 8), 0, "no heartbeat for 9 s (hang_timeout is 5 s)"),
        (Position(1, 5, False, 1), 0, "no heartbeat for 9 s (hang_timeout is 5 s)"),
    ],
    ids=["never started", "outside", "an earlier one", "a later one", "the same one", "busy"],
)
def test_the_leader_blames_the_rank_that_the_others_wait_for(
    other: Position, blamed: int, message: str
) -> None:
    hang = Hang()
    for host, position in (("algo-1", WAITS), ("algo-2", other)):
        sent = json.dumps({"positions": [position], "limit": 5, "tail": [f"the tail of {host}"]})
        hang.add(host, json.loads(sent))
    found = hang.blame(FailureReport(FailureClass.HANG, "no heartbeat", rank=0, host="algo-1"))
    assert (found.rank, found.host) == (blamed, f"algo-{blamed + 1}")
    assert found.message.endswith(message)
    assert found.log_tail == (f"the tail of algo-{blamed + 1}",)


def test_other_failures_keep_their_rank() -> None:
    report = FailureReport(FailureClass.USER_ERROR, "no", rank=0)
    assert Hang().blame(report) is report


HOME = "/home/ann/.local/state/cloudtrain/jobs/local/train/hosts/algo-1/code"
LIBC = Frame("clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0)
SOCKET = Frame("sock_recv", "/tmp/Python-3.11.7/Modules/socketmodule.c", 921)


@pytest.mark.parametrize("innermost", [LIBC, SOCKET, Frame("get", "/env/lib/python3.11/queue.py", 1)])
def test_the_site_is_a_line_of_the_script_in_a_job_folder_below_the_state_folder(innermost: Frame) -> None:
    stack = [
        innermost,
        Frame("beat", "/opt/library/cloudtrain/observe/heartbeat.py", 3),
        Frame("load", f"{HOME}/train.py", 12),
    ]
    assert site_of(stack) == f"{innermost.function} at train.py:12"
    assert site_of([LIBC, Frame("get", "/env/lib/python3.11/queue.py", 1)]) == "clock_nanosleep at queue.py:1"
    assert site_of([LIBC]) == "clock_nanosleep at libc.so.6"


def test_the_stacks_of_the_cause_are_first_with_its_main_thread() -> None:
    def dump(number: int) -> str:
        return (
            f'rank {number}:\nThread 0xa (most recent call first):\n  File "/t.py", line 1 in writes\n\n'
            f'Current thread 0xb (most recent call first):\n  File "/job/train.py", line {number} in trains\n'
            '  File "/x/runtime/rank.py", line 1 in main\n'
        )

    stacks = "\n".join(map(dump, range(3)))
    found = cause_first(stacks, 2)
    assert found.startswith(
        'rank 2:\nCurrent thread 0xb (most recent call first):\n  File "/job/train.py", line 2'
    )
    assert [line for line in found.splitlines() if line.startswith("rank")] == [
        "rank 2:",
        "rank 0:",
        "rank 1:",
    ]
    assert sorted(found.split()) == sorted(stacks.split()) and places_in(found) == places_in(stacks)
    assert cause_first(stacks, 7) == cause_first(stacks, None) == stacks
