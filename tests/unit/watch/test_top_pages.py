"""The screens of ``cloudtrain top``, from records that are written as the runtime writes them."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from large_job import large_job
from rich.console import Console

from cloudtrain._display.view import JobView, look_at
from cloudtrain._system.keys import names
from cloudtrain.cli.stacks import command as stacks
from cloudtrain.cli.top import command
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.history.described import describe_all
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.observe import EventLog, Sample
from cloudtrain.platforms import JobDescription, JobState
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.watch.asking import Answer, Asking
from cloudtrain.watch.top.app import Top
from cloudtrain.watch.top.hosts import Host, grouped, hosts_of, uses_of
from cloudtrain.watch.top.job_page import Scroll, job_page
from cloudtrain.watch.top.jobs import Row, RunningJobs
from cloudtrain.watch.top.lines import axis
from cloudtrain.watch.top.list_page import Choice, list_page
from cloudtrain.watch.top.poller import Poller


def shown(
    view: JobView, width: int = 140, height: int | None = 45, scroll: Scroll | None = None
) -> list[str]:
    return [line.plain.rstrip() for line in job_page(view, width, height, scroll)]


def test_ranks_that_differ_are_shown_first_of_1024() -> None:
    with large_job("large"):
        view = look_at(LocalPlatform(), "large")
    scroll = Scroll()
    lines = shown(view, scroll=scroll)
    assert len(lines) <= 45 and scroll.rows == 9
    hosts = [line for line in lines if line.startswith("host-")]
    assert [host.split()[0] for host in hosts] == ["host-77", "host-42", "host-100", "host-1"]
    assert "608-615" in hosts[0] and "rank 609: exit -9" in hosts[0]
    assert "low use" in hosts[1]
    assert hosts[2].split() == ["host-100", "fetch", "25%"]
    assert hosts[3].startswith("host-1 … host-128 (125)") and "train" in hosts[3] and "110" in hosts[3]
    gpus = [line.strip() for line in lines if line.strip().startswith("GPU")]
    assert [gpu.split()[1] for gpu in gpus] == ["0-7", "3", "0-2,4-7", "0-7"]
    assert "60/80" in gpus[0] and "12" in gpus[1] and gpus[-1].endswith("95 to 97%")
    everything = shown(view, scroll=Scroll(separate=True), height=None)
    assert sum(line.startswith("host-") for line in everything) == 128
    assert sum("GPU" in line for line in everything) == 127 * 8


def test_the_rows_scroll() -> None:
    with large_job("large", hosts=20):
        view = look_at(LocalPlatform(), "large")
    scroll = Scroll(separate=True)
    first = shown(view, height=20, scroll=scroll)
    assert scroll.rows == 20 * 9 + 1
    scroll.move(10**6)
    last = shown(view, height=20, scroll=scroll)
    assert first[:5] == last[:5] and len(last) == len(first) == 20
    assert "host-1 " in first[5] and "GPU 7" in last[-2]
    scroll.move(-(10**6))
    assert shown(view, height=20, scroll=scroll) == first


@pytest.mark.parametrize(
    ("seconds", "width", "expected"),
    [(80, 8, "←80 s→"), (600, 8, "←10 min→"), (36000, 8, "←10 h→"), (600, 12, "00:00  00:10")],
)
def test_a_time_axis_shows_both_ends_or_its_length(seconds: float, width: int, expected: str) -> None:
    midnight = time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, -1))
    assert axis(midnight, midnight + seconds, width) == expected
    assert len(expected) <= width


@pytest.mark.parametrize("width", [20, 40, 80, 125, 300])
def test_every_line_fits(width: int) -> None:
    with large_job("large"):
        view = look_at(LocalPlatform(), "large")
        rows = RunningJobs(is_live=False).look()
    for lines in (job_page(view, width, 12), list_page(rows, width, 12, Choice())):
        assert len(lines) <= 12
        assert all(line.cell_len <= width for line in lines)
        assert any("large" in line.plain for line in lines)
        if width >= 80:
            assert any("96" in line.plain for line in lines)


def test_what_a_job_wrote_is_harmless() -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\r\n\u202eevil"
    with large_job("large", hosts=2) as folder:
        log = EventLog(folder.events, evil)
        log.emit("host")
        log.emit("phase", phase=evil, state="began")
        log.emit("metric", name=f"loss{evil}", value=1.0)
        log.emit("warning", message=evil)
        log.emit("sample", seconds=1.0, gpu=[evil], gpu_throttling=[evil])
        view = look_at(LocalPlatform(), "large")
        rows = RunningJobs(is_live=False).look()
    for lines in (job_page(view, 200, None), list_page(rows, 200, None)):
        text = "\n".join(line.plain for line in lines)
        assert "evil" in text
        assert not {*text} & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}
        console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
        console.print(*lines, sep="\n")


def test_a_host_whose_clock_is_wrong_hides_no_other() -> None:
    with large_job("large", hosts=3) as folder:
        log = EventLog(folder.events, "host-2", clock=lambda: time.time() + 86_400)
        log.emit("sample", seconds=10.0, cpu=1.0, cpus=2)
        lines = shown(look_at(LocalPlatform(), "large"))
    [first] = [line for line in lines if line.startswith("host-1 ")]
    assert "▃▃" in first


def test_what_is_not_available_is_not_zero() -> None:
    with large_job("large", hosts=1) as folder:
        EventLog(folder.events, "mig").emit("sample", seconds=10.0, gpu=["GPU-1"], gpu_use=[None])
        lines = shown(look_at(LocalPlatform(), "large"))
    row = next(number for number, line in enumerate(lines) if line.startswith("mig"))
    assert lines[row].count("n/a") == lines[row + 1].count("n/a") == 2


def test_a_gpu_that_is_lost_shows_none_of_its_earlier_values_as_the_last() -> None:
    with large_job("large", hosts=1) as folder:
        log = EventLog(folder.events, "lost")
        for use in (97.0, None):
            log.emit("sample", seconds=10.0, gpu=["GPU-1"], gpu_use=[use], gpu_memory=[use and 7e10])
        view = look_at(LocalPlatform(), "large")
    row = next(line for line in shown(view) if line.lstrip().startswith("GPU 0") and "60/80" not in line)
    assert row.count("n/a") == 2 and "97" not in row and "█" in row
    [lost] = [host for host in hosts_of(view) if host.name == "lost"]
    assert [*uses_of(lost)] == []


def test_the_nodes_of_hosts_are_not_compared() -> None:
    sample = Sample(1.0, 10.0, cpu=1.0, cpus=2)
    hosts = [Host(f"pod-{n}", "running", f"on node gpu-{n}", samples=[sample]) for n in range(5)]
    hosts.append(Host("pod-5", "running", "on node gpu-5, 2 restarts", samples=[sample]))
    assert [len(group.hosts) for group in grouped(hosts)] == [1, 5]


def test_a_platform_that_does_not_answer() -> None:
    answers = iter(["first", PlatformError("down"), "second"])
    hangs = threading.Event()

    def look() -> str:
        answer = next(answers, None)
        if answer is None:
            hangs.wait()
            return "third"
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    poller = Poller(look)
    seen = set()
    until = time.monotonic() + 120
    while ("second", "") not in seen:
        seen.add((poller.result, poller.problem))
        assert time.monotonic() < until, seen
        time.sleep(0.01)
    assert ("first", "down") in seen
    poller.stop()  # while it hangs
    hangs.set()


def test_a_slow_platform_delays_no_other() -> None:
    answer, entered = threading.Event(), threading.Event()
    asked: list[str] = []

    def look(jobs: Sequence[IndexEntry]) -> str:
        asked.append(jobs[0].platform)
        if jobs[0].platform == "slow":
            entered.set()
            answer.wait()
        elif jobs[0].platform == "broken":
            raise PlatformError("it is down")
        return f"{len(jobs)} of {jobs[0].platform}"

    entries = [IndexEntry(f"{n}", name, 1.0) for n in range(3) for name in ("slow", "quick", "broken")]
    asking = Asking(look, 0.0)
    try:
        wait_for(
            lambda: asking.ask(entries)["quick"].result and asking.ask(entries)["broken"].problem[:2] == "it"
        )
        found = asking.ask(entries)
        assert found["quick"] == Answer("3 of quick", "") and found["broken"] == Answer(None, "it is down")
        assert found["slow"] == Answer(None, "asking slow ...")
        entered.wait()
        assert asked.count("slow") == 1
    finally:
        answer.set()
    wait_for(lambda: asking.ask(entries)["slow"] == Answer("3 of slow", ""))
    whole = Asking(look, None).ask(entries)
    assert {answer.result for answer in whole.values()} == {"3 of slow", "3 of quick", None}


def test_a_platform_is_asked_again_after_no_thread_could_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asking = Asking(len, None)
    with monkeypatch.context() as limit:
        limit.setattr("threading.Thread.start", start)
        assert asking.ask([IndexEntry("one", "local", 1.0)]) == {
            "local": Answer(None, "can't start new thread")
        }
    assert asking.ask([IndexEntry("one", "local", 1.0)]) == {"local": Answer(1, "")}


def wait_for(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_list_shows_a_platform_that_is_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def describe(entries: Sequence[IndexEntry], **how: Any) -> dict[IndexEntry, JobDescription | Exception]:
        if entries[0].platform == "slurm":
            answer.wait()
        return describe_all(entries, **how)

    monkeypatch.setattr("cloudtrain.watch.top.jobs.describe_all", describe)
    add_job(IndexEntry("queued", "slurm", 1.0))
    try:
        with large_job("large", hosts=2):
            jobs = RunningJobs()
            wait_for(lambda: [row for row in jobs.look() if row.view])
            text = "\n".join(line.plain for line in list_page(jobs.look(), 200, None))
    finally:
        answer.set()
    assert re.search("large .* Running|large .* train", text) and re.search("queued .* asking slurm", text)


def test_without_a_terminal_it_prints_once(tmp_path: Path) -> None:
    with large_job("large"):
        printed = CliRunner().invoke(command, ["large"])
        assert "host-77" in printed.output and "\x1b" not in printed.output
        assert "large" in CliRunner().invoke(command, []).output
        found = json.loads(CliRunner().invoke(command, ["large", "--json"]).output)
        [row] = json.loads(CliRunner().invoke(command, ["--json"]).output)
    assert len(found["ranks"]) == 127 * 8
    assert found["ranks"][608] == {
        "number": 608,
        "host": "host-77",
        "state": "train",
        "exit_code": None,
        "step": 110,
        "data_wait": None,
    }
    assert [span["phase"] for span in found["spans"]] == ["fetch", "train"]
    assert len(found["recent_samples"]["host-1"]) == 9
    assert (row["name"], row["status"], len(row["hosts"])) == ("large", "Running", 128)
    assert CliRunner().invoke(command, ["--json"]).output == "[]\n"  # it has ended: its supervisor is gone


def test_keys() -> None:
    assert names("\x1b[A\x1bOBq\x1b[6~\r\x1b") == ["up", "down", "q", "page-down", "enter", "escape"]
    assert names("\x1b[1;5A\x1b[200~é\0") == ["é"]


def test_the_list_shows_why_a_job_waits() -> None:
    description = JobDescription("queued", "slurm", JobStatus.PENDING, 0.0)
    states = [JobState(1.0, "Pending", "Resources: 4 of 8 nodes are free\x1b[2J")]
    rows = [
        Row("queued", "slurm", JobView(description, 5.0, states=states)),
        Row("silent", "kubernetes", None, "the cluster does not answer"),
        Row("later", "slurm", JobView(replace(description, name="later"), 5.0), "connection refused", at=1.0),
    ]
    queued, silent, later = (line.plain for line in list_page(rows, 120, None)[1:])
    assert "Pending" in queued and "Resources: 4 of 8 nodes are free" in queued and "\x1b" not in queued
    assert "Unknown" in silent and "the cluster does not answer" in silent
    assert "as of" in later and "connection refused" in later
    [first, second] = job_page(rows[0].view or JobView(description, 5.0), 100, 20)[:2]
    assert first.plain.startswith("queued  on slurm  Pending") and second.plain.startswith("waits: Resources")


def test_a_job_whose_platform_cannot_be_loaded_is_not_opened() -> None:
    add_job(IndexEntry("lost", "no-such-platform", 1.0))
    with closing(Top(Console(file=io.StringIO(), width=100, height=20), None, None)) as top:
        until = time.monotonic() + 60
        while not (top._jobs and top._jobs.result):
            assert time.monotonic() < until
            time.sleep(0.01)
        top._press("enter")
        text = "\n".join(line.plain for line in top._lines())
        assert "unknown platform 'no-such-platform'" in text.split("\n")[0] and "lost" in text
        top._press("down")
        assert top._problem == ""


def test_no_hint_leads_in_a_circle() -> None:
    """A job that has ended without stacks: they cannot be taken, either."""
    with large_job("large"):
        running = CliRunner().invoke(stacks, ["large", "--last"])
    ended = CliRunner().invoke(stacks, ["large", "--last"])
    assert (
        isinstance(running.exception, PlatformError) and "cloudtrain stacks large" in running.exception.hint
    )
    assert isinstance(ended.exception, PlatformError) and "cloudtrain stacks" not in ended.exception.hint
    assert ended.exception.hint.endswith("How it ended: cloudtrain describe large")
