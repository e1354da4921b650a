"""The stacks of ranks in many states, and what a host and the leader make of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudtrain.observe import EventLog, Summary, read_events
from cloudtrain.observe.event_lines import LONGEST, encode_event
from cloudtrain.observe.stacks import MOST_GROUPS, StackDump
from cloudtrain.runtime.diagnose.hangs import COLLECTIVE, places_in
from cloudtrain.runtime.diagnose.stacks import CHILD_SECONDS, RankProcess, Taken, take
from cloudtrain.runtime.diagnose.tracers import Frame, Tracer
from cloudtrain.runtime.run_folder import stacks_path
from cloudtrain.runtime.stack_collector import StackCollector
from cloudtrain.runtime.stack_request import LONGEST_TEXT, stacks_text, to_groups

PROGRAM = str(Path(__file__).with_name("stack_ranks.py"))
Start = Callable[..., RankProcess]


@pytest.fixture
def processes() -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    started: dict[int, subprocess.Popen[bytes]] = {}
    yield started
    for process in started.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def start(tmp_path: Path, processes: dict[int, subprocess.Popen[bytes]]) -> Start:
    """Starts the next rank, in a state of `stack_ranks`."""

    def start(state: str) -> RankProcess:
        local = len(processes)
        process = processes[local] = subprocess.Popen(
            [sys.executable, PROGRAM, str(tmp_path), str(local), state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + 120
        while not (tmp_path / f"ready-{local}").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline, "waited 120 s for a rank"
            time.sleep(0.02)
        return RankProcess(local, local, process.pid)

    return start


def settle(process: RankProcess, state: str = "S") -> None:
    """Wait until the kernel shows a process in this state."""
    deadline = time.monotonic() + 120
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != state:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ranks_that_run(tmp_path: Path, start: Start, processes: dict[int, subprocess.Popen[bytes]]) -> None:
    ranks = [
        start(name) for name in ("computes", "reads_a_pipe", "holds_the_interpreter_lock", "has_a_handler")
    ]
    for rank in ranks[1:]:
        settle(rank)
    for _ in range(3):
        began = time.monotonic()
        taken = take(str(tmp_path), ranks, 100)
        assert time.monotonic() - began < 60
        names = [[frame.function for frame in found.frames] for found in taken]
        assert "computes" in names[0]
        assert "reads_a_pipe" in names[1]
        assert names[2][0] == "holds_the_interpreter_lock"
        assert names[3][0] == "has_a_handler"
        assert [found.state for found in taken] == ["", "", "", ""]
    assert all(process.poll() is None for process in processes.values())


def test_a_stopped_rank_is_not_waited_for(tmp_path: Path, start: Start) -> None:
    rank = start("stopped")
    settle(rank, "T")
    began = time.monotonic()
    [taken] = take(str(tmp_path), [rank], 100)
    assert (taken.state, taken.frames) == ("stopped by a signal", [])
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("all_threads", [False, True])
def test_ranks_that_sleep_uninterruptibly(all_threads: bool, tmp_path: Path, start: Start) -> None:
    """Before ranks that hang are ended, another thread dumps the stack of one that sleeps."""
    alone, threaded = start("asleep"), start("asleep_with_threads")
    settle(alone, "D")
    settle(threaded, "D")
    began = time.monotonic()
    taken = take(str(tmp_path), [alone, threaded], 100, all_threads=all_threads)
    assert time.monotonic() - began < 60
    ranks = [found for found in taken if not found.process.name]
    assert all(found.state.startswith("sleeps uninterruptibly in the kernel") for found in ranks)
    names = [[frame.function for frame in found.frames] for found in ranks]
    assert names == [[], ["starts", "asleep_with_threads", "<module>"] if all_threads else []]


def test_processes_of_a_rank(tmp_path: Path, start: Start) -> None:
    rank = start("has_workers")
    [young, *below] = take(str(tmp_path), [rank], 20)
    assert young.frames
    assert {found.state for found in below if found.process.name != "sleep"} <= {"is being started"}
    time.sleep(CHILD_SECONDS)
    taken = take(str(tmp_path), [rank], 20)
    below = [found for found in taken if found.process.name]
    workers = [found for found in below if found.frames]
    assert [[frame.function for frame in found.frames] for found in workers] == [
        ["load_batch", "run", "_bootstrap"]
    ] * 2
    assert [(found.process.name, found.state) for found in below if not found.frames] == [
        ("sleep", "a program without the handler of cloudtrain")
    ]
    assert len(to_groups(taken)) == 3


def test_system_calls_of_a_rank_continue(
    tmp_path: Path, start: Start, processes: dict[int, subprocess.Popen[bytes]]
) -> None:
    rank = start("notices_signals")
    settle(rank)
    for _ in range(20):
        assert take(str(tmp_path), [rank], 20)[0].frames
    process = processes[0]
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"a")
    process.stdin.flush()
    time.sleep(0.5)
    settle(rank)
    assert take(str(tmp_path), [rank], 20)[0].frames
    process.stdin.write(b"b")
    process.stdin.flush()
    began, first, second = (process.stdout.readline() for _ in range(3))
    assert (began, first[:8], second) == (b"began\n", b"b'a' [] ", b"1 b'b' 0\n")


def test_threads_that_run_do_not_disturb(
    tmp_path: Path, start: Start, processes: dict[int, subprocess.Popen[bytes]]
) -> None:
    """A dump of all threads would end this rank after a few of them."""
    rank = start("has_busy_threads")
    for _ in range(30):
        [taken] = take(str(tmp_path), [rank], 20)
        assert "has_busy_threads" in [frame.function for frame in taken.frames]
    assert processes[0].poll() is None


def test_a_rank_that_has_ended(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    [taken] = take(str(tmp_path), [RankProcess(0, 0, process.pid)], 20)
    assert taken.state == "has ended"


def test_a_script_replaces_its_file(tmp_path: Path, start: Start) -> None:
    rank = start("reads_a_pipe")
    settle(rank)
    Path(stacks_path(str(tmp_path), 0)).unlink()
    os.mkfifo(stacks_path(str(tmp_path), 0))
    [taken] = take(str(tmp_path), [rank], 3)
    assert (taken.state, taken.frames) == ("does not respond", [])


@pytest.mark.parametrize("program", ["py-spy", "pystack"])
def test_native_frames(program: str, tmp_path: Path, start: Start) -> None:
    holder, workers = start("holds_the_interpreter_lock"), start("has_workers")
    settle(holder)
    tracer = Tracer(str(Path(sys.executable).with_name(program)))
    taken = take(str(tmp_path), [holder, workers], 60, tracer, native=True)
    names = [frame.function for frame in taken[0].frames]
    assert "read" in names[0], names
    assert "holds_the_interpreter_lock" in names
    below = [found.frames for found in taken if found.process.name]
    assert [any(frame.function == "load_batch" for frame in frames) for frames in below].count(True) == 2
    assert all("sleep" in frames[0].function for frames in below if frames), below
    assert all(frames[-1].function.endswith("_bootstrap") for frames in below if frames), below
    if program == "py-spy":
        assert names[0].endswith("[holds the GIL]")
    settle(holder)


def collected(
    folder: Path, hosts: list[str], answers: dict[str, list[dict[str, object]]], wait: float = 0
) -> StackDump:
    """The dump that a client reads after hosts have answered."""
    now = [0.0]
    events = EventLog(folder / "events.jsonl", hosts[0])
    collector = StackCollector(hosts, events, lambda: now[0])
    request = collector.request()
    assert request
    for host, groups in answers.items():
        collector.add(host, json.loads(json.dumps({"id": request["id"], "groups": groups})))
    now[0] = wait
    collector.look()
    collector.wait()
    summary = Summary()
    for event in read_events(folder / "events.jsonl"):
        assert len(encode_event(event)) <= LONGEST
        summary.add(event)
    assert summary == Summary.from_dict(json.loads(json.dumps(summary.to_dict())))
    assert summary.stacks.last
    return summary.stacks.last


ALL_REDUCE = (
    Frame("all_reduce", "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2806),
    Frame("<module>", "/opt/ml/code/train.py", 41),
)
LOAD = (Frame("load", "/opt/ml/code/data.py", 12), Frame("<module>", "/opt/ml/code/train.py", 9))


def test_a_thousand_ranks(tmp_path: Path) -> None:
    answers = {}
    for number in range(128):
        ranks = range(8 * number, 8 * number + 8)
        taken = [Taken(RankProcess(rank, 0, 1), frames=LOAD if rank == 7 else ALL_REDUCE) for rank in ranks]
        answers[f"algo-{number + 1}"] = to_groups(taken, "/opt/ml/code")
    dump = collected(tmp_path, list(answers), answers)
    odd, others = dump.groups
    assert (dump.ranks, dump.silent, dump.more) == (1024, (), 0)
    assert (odd.ranks, odd.where, odd.hosts) == ("7", "load at data.py:12", ("algo-1",))
    assert odd.stack == "load (data.py:12)\n<module> (train.py:9)"
    assert (others.ranks, others.count) == ("0-6,8-1023", 1023)
    assert others.where == "all_reduce at train.py:41"


def test_many_different_stacks_are_bounded(tmp_path: Path) -> None:
    frames = [
        tuple(Frame("f" * 300, "/\x1b]8;;" + "d" * 300, line) for line in range(rank, rank + 60))
        for rank in range(1024)
    ]
    taken = [Taken(RankProcess(rank, 0, 1), frames=stack) for rank, stack in enumerate(frames)]
    dump = collected(tmp_path, ["h"], {"h": to_groups(taken)})
    assert (len(dump.groups), dump.more) == (MOST_GROUPS, 1024 - MOST_GROUPS)
    assert all(len(group.stack) > 1000 for group in dump.groups)


def test_hosts_that_do_not_answer(tmp_path: Path) -> None:
    answer = to_groups([Taken(RankProcess(0, 0, 1), frames=LOAD)])
    dump = collected(tmp_path, ["h1", "h2", "h3"], {"h2": answer}, wait=60)
    assert (dump.silent, dump.ranks) == (("h1", "h3"), 1)


def test_a_disk_that_fails_or_hangs_does_not_delay_the_leader(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "file" / "events.jsonl", tmp_path / "loop" / "events.jsonl"):
        collector = StackCollector(["h"], EventLog(path, "h"))
        assert collector.request()
        collector.finish()
        collector.wait()

    class Hanging(EventLog):
        def append(self, lines: bytes) -> None:
            time.sleep(600)

    collector = StackCollector(["h"], Hanging(tmp_path / "events.jsonl", "h"))
    began = time.monotonic()
    for _ in range(3):
        assert collector.request()
        collector.finish()
    assert time.monotonic() - began < 60  # the disk hangs for ten minutes


@pytest.mark.parametrize("ranks", [[], ["1"], [-1], [None]])
def test_an_invalid_answer_changes_nothing(ranks: list[object], tmp_path: Path) -> None:
    collector = StackCollector(["h"], EventLog(tmp_path / "events.jsonl", "h"))
    request = collector.request()
    assert request
    group = {"process": "", "state": "", "where": "", "stack": "", "kind": 0}
    groups = [{**group, "ranks": [0]}, {**group, "ranks": ranks}]
    with pytest.raises(ValueError, match="ranks of a group"):
        collector.add("h", {"id": request["id"], "groups": groups})
    collector.finish()
    collector.wait()
    [event] = read_events(tmp_path / "events.jsonl")
    assert (event["ranks"], event["silent"]) == (0, ["h"])


def test_the_text_of_a_host_is_bounded() -> None:
    """The main thread, which decides, is left of a long dump; children are in the groups only."""
    threads = "".join(
        f'Thread 0x{number:x} (most recent call first):\n  File "/d/{"x" * 400}.py", line 1 in f\n'
        for number in range(500)
    )
    main = "".join(f'  File "{frame.file}", line {frame.line} in {frame.function}\n' for frame in ALL_REDUCE)
    text = f"{threads}Current thread 0xff (most recent call first):\n{main}"
    taken = [
        Taken(RankProcess(rank, rank, 1, name), text) for rank in range(8) for name in ("", *["child"] * 32)
    ]
    found = stacks_text(taken, dict.fromkeys(range(8), "all_reduce " * 9999))
    assert len(found) < 3 * LONGEST_TEXT
    places = places_in(found)
    assert [places[rank].kind for rank in range(8)] == [COLLECTIVE] * 8
    assert places[0].call == "all_reduce at train.py:41"
