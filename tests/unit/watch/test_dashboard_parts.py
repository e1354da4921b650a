"""The parts of the dashboard without its server."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from audit import opened_files
from large_job import large_job

from cloudtrain.errors import InvalidJob, JobNotFound
from cloudtrain.history.described import at_once, describe_all, each, is_slow
from cloudtrain.index import IndexEntry, add_job, list_rows
from cloudtrain.platforms import Platform
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.watch.asking import Answer
from cloudtrain.watch.dashboard import Address, jobs as page_of_jobs, logs, parts
from cloudtrain.watch.dashboard.jobs import Jobs, Wanted
from cloudtrain.watch.dashboard.logs import Logs
from cloudtrain.watch.report import gather_from, render
from cloudtrain.watch.report.document import Table


def prints(text: str, then: str = "") -> list[str]:
    """A command that prints a line again and again, or once."""
    return ["sh", "-c", f"echo {text}; {then or f'while true; do echo {text}; sleep 0.01; done'}"]


def wait_until(condition: Callable[[], object], what: str, timeout: float) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def test_lines_without_requests_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(logs, "KEPT", 50_000)
    monkeypatch.setattr(logs, "MOST_READ", 1)
    read = Logs(prints("x" * 1000))
    wait_until(lambda: len(read.last()) > 10, "lines", 60)
    assert len(read.last()) < 50
    other = Logs(prints("y", "sleep 1000"))
    assert other.last() == [] and "1 other jobs" in other.problem
    wait_until(lambda: other.last() == ["y"], "a place for the other reader", 60)
    assert other.problem == ""


def test_the_reader_of_a_silent_job_ends_when_no_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "IDLE_SECONDS", 2.0)
    sleeps = f"sleep 1001.{os.getpid()}"
    silent = Logs(prints("x", f"exec {sleeps}"))
    assert silent.last() == ["x"]
    wait_until(lambda: len(_processes_of(sleeps)) == 1, "the start of the process", 120)
    wait_until(lambda: not _processes_of(sleeps), "the end of the process", 120)
    wait_until(
        lambda: not any(sleeps in one.name for one in threading.enumerate()), "that of the thread", 120
    )
    assert silent.last() == ["x"]  # it is read again for the next page
    wait_until(
        lambda: not _processes_of(sleeps), "the end of that process, which would outlive this one", 120
    )


def test_a_reader_shows_why_it_fails() -> None:
    failed = Logs(prints("x", "echo 'no access' >&2; exit 1"))
    wait_until(lambda: bool(failed.last() and failed.problem), "its error", 120)
    assert failed.problem == "no access"


def _processes_of(command: str) -> list[Path]:
    """The processes of this machine that run a command."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if place.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip() == command:
                found.append(place)
    return found


def test_a_list_that_has_not_changed_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(120):
        _add(f"job-{number}", {"lr": "0.1"}, why="", record="")
    jobs, reads = Jobs(), []
    monkeypatch.setattr(page_of_jobs, "STALE_SECONDS", 1e9)
    monkeypatch.setattr(page_of_jobs, "list_rows", lambda **how: reads.append(how) or list_rows(**how))
    for wanted, count in (
        (Wanted(), 100),
        (Wanted(page=1), 20),
        (Wanted(name="JOB-11", platform="nowhere"), 11),
    ):
        with opened_files() as opened:
            found = jobs.page(wanted)
        assert len(found.rows) == count and {row.status for row in found.rows} == {"Completed"}
        assert len(opened) <= 6, opened
    assert len(reads) == 1
    assert jobs.page(Wanted(where="lr < 1", name="%")).count == 0
    assert jobs.page(Wanted(where="lr < 1", name="JOB-11", group="lr")).count == 11
    _add("job-new", {}, why="", record="")
    assert jobs.page(Wanted()).count == 121
    assert len(reads) == 2


def test_a_platform_that_is_broken_or_slow_hides_no_job_of_another() -> None:
    entries = [
        IndexEntry(f"{name}-{n}", name, 1.0) for n in range(10) for name in ("no-such-platform", "local")
    ]
    with large_job("local-3", hosts=2):
        described = describe_all(entries)
    kinds = {entry.name: type(found).__name__ for entry, found in described.items()}
    assert kinds.pop("local-3") == "JobDescription"
    assert {kinds[f"local-{n}"] for n in (0, 8)} == {"JobNotFound"}
    assert {kinds[f"no-such-platform-{n}"] for n in range(10)} == {"UnknownPlatform"}
    together = threading.Barrier(8, timeout=60)

    def look(_: Platform, name: str) -> int:
        if name in {"local-0", "local-1"}:
            return time.sleep(0.5) or 0
        assert threading.current_thread().daemon, "Ctrl-C would wait for it"
        return together.wait()

    slow = each([entry for entry in entries if entry.platform == "local"], look)
    assert sorted(map(repr, slow.values())) == sorted(map(repr, [0, 0, *range(8)]))  # the first two alone


def test_a_job_of_another_page_than_the_one_in_progress_is_shown_as_being_asked() -> None:
    first, second = IndexEntry("first", "slurm", 1.0), IndexEntry("second", "slurm", 2.0)
    answer = Answer({first: JobNotFound("it is gone")}, "")
    assert str(page_of_jobs._described(first, answer)) == "it is gone"
    assert str(page_of_jobs._described(second, answer)) == "asking slurm ..."


def test_platforms_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.history.described.PATIENCE", 0.0)
    together, said = threading.Barrier(2, timeout=60), threading.Event()
    waits: list[str] = []

    def action(jobs: Sequence[IndexEntry]) -> dict[IndexEntry, int]:
        together.wait()
        if jobs[0].platform == "slow":
            said.wait(60)
        return dict.fromkeys(jobs, 1)

    def say(platforms: Sequence[str]) -> None:
        waits.extend(platforms)
        said.set()

    entries = [IndexEntry(f"{n}", name, 1.0) for n in range(3) for name in ("slow", "quick")]
    assert at_once(entries, action, say) == dict.fromkeys(entries, 1)
    assert "slow" in waits
    with pytest.raises(ZeroDivisionError):
        at_once(entries[:1], lambda jobs: dict.fromkeys(jobs, 1 // 0))


def test_a_platform_is_slow_after_two_slow_looks_in_a_row() -> None:
    assert not is_slow([0.4])  # the first look imports the platform
    assert not is_slow([0.4, 0.001, 0.4, 0.001])
    assert is_slow([0.001, 0.4, 0.06])


def test_certificates_are_checked_before_the_address_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("no PEM")
    with pytest.raises(InvalidJob, match=r"certificate\.pem and --key .* cannot be used"):
        Address(certificate=file, key=file).check()


def test_times_are_times_and_groups_are_in_the_order_of_their_values() -> None:
    for number, lr in enumerate(("10", "9", "0.5", "high")):
        _add(f"job-{number}", {"lr": lr}, started_at=1_790_000_000.0)
    _add("damaged", {}, started_at=1e18)
    found = Jobs().page(Wanted(where="started > '2020-01-01'", group="lr"))
    assert [row.group for row in found.rows] == ["lr: 0.5", "lr: 9", "lr: 10", "lr: high", "lr: unknown"]
    assert found.rows[0].more["started"].startswith("2026-09-2")
    assert found.rows[-1].more["started"] == ""


def _add(name: str, parameters: dict[str, str], **facts: Any) -> None:
    ended = {"status": "Completed", "ended_at": 1_790_000_060.0, "seen_at": 1_790_000_060.0, **facts}
    add_job(IndexEntry(name, "nowhere", 1_789_999_999.0), ended, parameters)


def test_a_report_of_1024_ranks_has_curves_of_samples_and_stays_small() -> None:
    with large_job("large", minutes=3):
        found = gather_from("large", LocalPlatform())
        html = render([found])
        shown = parts.ranks(found.view) if found.view else None
    for title in ("CPU use, %", "memory use, %", "GPU use, %", "GPU memory use, %"):
        assert f">{title}</text>" in html, title
    assert len(html) < 5_000_000
    assert shown and isinstance(shown.blocks[0], Table)
    rows = shown.blocks[0].rows
    assert len(rows) < 10 and any("host-77" in row[0] and "exit" in row[4] for row in rows)
