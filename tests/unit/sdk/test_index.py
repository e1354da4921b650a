"""The index of jobs, and what is found without it."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cloudtrain._display.past import cost_of
from cloudtrain.contract import JobStatus
from cloudtrain.history import query
from cloudtrain.index import (
    VERSION,
    IndexEntry,
    add_job,
    find_job,
    list_jobs,
    remember_found,
    remove_job,
    remove_submission,
)
from cloudtrain.platforms.batch.cluster_platform import Ticket, Tickets
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import state_home


def job_folder(name: str) -> IndexEntry:
    """A job on ``local`` that the index does not have."""
    folder = JobFolder.of("local", name)
    folder.path.mkdir(parents=True)
    folder.write_record(JobRecord(JobStatus.COMPLETED, submitted_at=3.0))
    os.utime(folder.path / "state.json", (3.0, 3.0))
    return IndexEntry(name, "local", 3.0)


def test_an_added_job_is_found_until_it_is_removed() -> None:
    old, new = IndexEntry("a", "local", 1.0), IndexEntry("a", "other", 2.0)
    add_job(old)
    number = add_job(new)
    assert find_job("a") == new
    assert list_jobs() == [new, old]
    remove_submission(number)
    assert find_job("a") == old
    assert find_job("b") is None
    remove_job("a", "local")
    assert list_jobs() == []


def test_a_submission_that_failed_removes_no_other_of_its_name() -> None:
    loser = add_job(IndexEntry("a", "local", 1.0))
    winner = IndexEntry("a", "local", 2.0)
    add_job(winner)
    remove_submission(loser)
    assert list_jobs() == [winner]


def test_a_listed_job_is_found_by_its_name_unless_one_was_submitted_here() -> None:
    listed, later = IndexEntry("a", "slurm", 1.0), IndexEntry("a", "slurm", 2.0)
    remember_found([listed, IndexEntry("b", "kubernetes", 1.0)])
    remember_found([later])
    assert find_job("a") == later
    assert list_jobs() == []
    own = IndexEntry("a", "local", 0.0)
    add_job(own)
    assert find_job("a") == own
    assert list_jobs() == [own]
    remove_job("a", "local")
    assert find_job("a") == later
    remove_job("a", "slurm")
    assert find_job("a") is None


def _add(first: int) -> None:
    for number in range(first, first + 5):
        add_job(IndexEntry(f"job-{number}", "local", float(number)))


def test_many_threads_and_processes_at_the_same_time() -> None:
    with multiprocessing.get_context("fork").Pool(3) as processes:
        done = processes.map_async(_add, range(0, 30, 5))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(_add, range(30, 60, 5)))
        done.get(60)
    assert [entry.name for entry in list_jobs()] == [f"job-{number}" for number in reversed(range(60))]


def _add_array(writer: int) -> None:
    for number in range(200):
        entry = IndexEntry(f"array-{writer}-{number}", "sagemaker", float(number))
        assert add_job(entry, {"owner": "me"}, {"lr": f"{number / 1000}"})


def test_three_writers_of_arrays_lose_nothing_while_a_reader_keeps_the_index_open() -> None:
    add_job(IndexEntry("first", "local", 0.0))
    reader = sqlite3.connect(state_home() / "index.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM history").fetchone() == (1,)
    with multiprocessing.get_context("fork").Pool(3) as processes:
        done = processes.map_async(_add_array, range(3))
        seen = 1
        while not done.ready():
            found = len(list_jobs())
            assert found >= seen
            seen = found
            done.wait(0.02)
        done.get()
    assert reader.execute("SELECT count(*) FROM history").fetchone() == (
        1,
    )  # its transaction is as old as it is
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM history").fetchone() == (601,)
    assert reader.execute("SELECT count(*) FROM parameters").fetchone() == (600,)
    assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader.close()


def journal(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return str(database.execute("PRAGMA journal_mode").fetchone()[0])


def test_a_network_file_system_never_has_a_write_ahead_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = state_home() / "index.db"
    add_job(IndexEntry("here", "sagemaker", 1.0))
    assert journal(path) == "wal"
    table = tmp_path / "mountinfo"
    table.write_text(
        f"21 1 254:1 / / rw - ext4 /dev/vda rw\n22 21 0:5 / {state_home()} rw - lustre a@tcp:/fs rw\n"
    )
    monkeypatch.setattr("cloudtrain._system.mounts.MOUNTS", table)
    list_jobs()
    add_job(IndexEntry("moved", "sagemaker", 2.0))
    assert journal(path) == "delete"
    assert [entry.name for entry in list_jobs()] == ["moved", "here"]
    with multiprocessing.get_context("fork").Pool(3) as processes:
        processes.map(_add, range(0, 30, 5))
    assert len(list_jobs()) == 32
    assert not (state_home() / "index.db-wal").exists()


def test_a_read_only_folder_can_be_read() -> None:
    add_job(IndexEntry("here", "sagemaker", 1.0))
    for end in ("-wal", "-shm"):
        (state_home() / f"index.db{end}").unlink(missing_ok=True)
    found = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(state_home())], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr, found.returncode) == ("here\n", "", 0)


READ_ONLY = """
import ctypes, os, sys
if ctypes.CDLL(None).unshare(0x00020000):  # its own mount namespace
    raise OSError("this test needs root")
libc, home = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode()
for flags in (0x4000 | 0x40000, 0x1000, 0x1000 | 0x20 | 0x1):  # private, bind, read-only
    where, what = (b"/", None) if flags & 0x4000 else (home, home)
    if libc.mount(what, where, None, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
from cloudtrain.index import list_jobs
print(*[entry.name for entry in list_jobs()])
"""


def test_jobs_with_a_folder_or_a_ticket_are_found_without_an_index() -> None:
    here = job_folder("here")
    Tickets("slurm").write("there", Ticket("kraken"))
    assert find_job("here") == here
    found = find_job("there")
    assert found
    assert found.platform == "slurm"
    assert [entry.name for entry in list_jobs()] == ["there", "here"]
    assert not (state_home() / "index.db").exists()
    for name in ("", "*", "..", "../local/here", "here\0"):
        assert find_job(name) is None


def text(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def other_table(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE jobs (x INTEGER)")


def other_columns(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE history (x INTEGER)")
        database.execute(f"PRAGMA user_version = {VERSION}")


def torn(path: Path) -> None:
    for number in range(200):
        add_job(IndexEntry(f"gone-{number}", "sagemaker", 1.0))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) // 2))


@pytest.mark.parametrize("spoil", [text, other_table, other_columns, torn, Path.mkdir, os.mkfifo])
def test_a_damaged_index_is_moved_aside_and_hides_nothing(spoil: Callable[[Path], object]) -> None:
    here, path = job_folder("here"), state_home() / "index.db"
    spoil(path)
    with pytest.warns(UserWarning, match="was damaged, and was moved to index.damaged.db") as warned:
        assert list_jobs() == [here]
        assert find_job("here") == here
        add_job(IndexEntry("new", "sagemaker", 5.0))
    assert len({str(one.message) for one in warned}) == 1
    assert [entry.name for entry in list_jobs()] == ["new", "here"]
    assert path.with_name("index.damaged.db").exists()


def test_each_damaged_index_is_kept_with_its_log() -> None:
    path = state_home() / "index.db"
    for content in (b"one" * 999, b"two" * 999):
        path.write_bytes(content)
        path.with_name("index.db-wal").write_bytes(content)
        with pytest.warns(UserWarning, match="was damaged"):
            assert list_jobs() == []
    for name, content in (("index.damaged.db", b"one" * 999), ("index.damaged.2.db", b"two" * 999)):
        assert path.with_name(name).read_bytes() == content
        assert path.with_name(f"{name}-wal").read_bytes() == content


def test_a_name_that_is_not_text_is_not_found_and_harms_nothing() -> None:
    add_job(IndexEntry("here", "sagemaker", 1.0))
    for name in ("a\udcff", "\ud800", "a\0"):
        assert find_job(name) is None
    assert find_job("here")


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize("spoil", [newer, lambda path: path.symlink_to(path)])
def test_an_index_that_cannot_be_used_is_left_alone(spoil: Callable[[Path], object]) -> None:
    here, path = job_folder("here"), state_home() / "index.db"
    spoil(path)
    before = path.lstat().st_ino
    with pytest.warns(UserWarning, match=r"the index of jobs cannot be used \(.*index\.db"):
        assert add_job(IndexEntry("new", "sagemaker", 5.0)) is None
        assert list_jobs() == [here]
    assert path.lstat().st_ino == before


def test_a_locked_index_is_waited_for_and_then_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    job_folder("here")
    add_job(IndexEntry("hidden", "sagemaker", 5.0))
    monkeypatch.setattr("cloudtrain.index.database.LOCKED_SECONDS", 0.1)
    other = sqlite3.connect(state_home() / "index.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.warns(UserWarning, match="database is locked"):
        assert add_job(IndexEntry("new", "local", 5.0)) is None
        assert [entry.name for entry in list_jobs()] == ["hidden", "here"]  # readers need not wait
    other.close()
    assert add_job(IndexEntry("new", "local", 6.0))
    assert [entry.name for entry in list_jobs()] == ["new", "hidden", "here"]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(IndexEntry("old", "sagemaker", 1.0))
    connect = sqlite3.connect

    def full(*arguments: object, **options: object) -> sqlite3.Connection:
        database = connect(*arguments, **options)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 2")
        return database  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.warns(UserWarning, match=r"disk is full.*: job n.* on local is not added to it"):
        assert add_job(IndexEntry("n" * 9000, "local", 5.0)) is None
    assert [entry.name for entry in list_jobs()] == ["old"]


def test_the_jobs_of_version_2_are_kept() -> None:
    path = state_home() / "index.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE submissions (name TEXT, platform TEXT, submitted_at REAL)")
        database.execute("CREATE TABLE found (name, platform, submitted_at, PRIMARY KEY (name, platform))")
        rows = [
            ("old", "sagemaker", 1.0),
            ("old", "sagemaker", 3.0),
            ("odd", None, 1.0),
            ("odder", "local", "late"),
        ]
        database.executemany("INSERT INTO submissions VALUES (?, ?, ?)", rows)
        database.execute("INSERT INTO found VALUES ('there', 'slurm', 1.0)")
        database.execute("PRAGMA user_version = 2")
    assert list_jobs() == [IndexEntry("old", "sagemaker", 3.0)]  # readers do not change the file
    number = add_job(IndexEntry("new", "sagemaker", 4.0))
    assert number == 3
    assert [entry.name for entry in list_jobs()] == ["new", "old"]
    assert find_job("there") == IndexEntry("there", "slurm", 1.0)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
    remove_submission(number)
    assert add_job(IndexEntry("newer", "sagemaker", 5.0)) == 4  # no number is used twice


def test_the_history_of_version_3_is_kept() -> None:
    """Its rows have a cost without a currency."""
    add_job(IndexEntry("old", "sagemaker", 1.0), {"cost": 2.5, "status": "Completed"})
    with closing(sqlite3.connect(state_home() / "index.db")) as database, database:
        for column in ("currency", "plan_error", "plan_cost_error"):
            database.execute(f"ALTER TABLE history DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 3")
    assert list_jobs() == [IndexEntry("old", "sagemaker", 1.0)]
    [job] = query("cost > 2", up_to_date=False)
    assert (job.cost, job.currency, str(cost_of(job))) == (2.5, None, "$2.50")
    add_job(IndexEntry("new", "sagemaker", 2.0), {"cost": 9.0, "currency": "EUR", "status": "Completed"})
    add_job(IndexEntry("cheap", "sagemaker", 3.0), {"cost": 3.0, "currency": "USD", "status": "Completed"})
    found = query("currency != None", sort="cost", up_to_date=False)
    assert [str(cost_of(job)) for job in found] == ["9.00 EUR", "$3.00"], "currencies are not compared"


def test_the_history_of_version_4_is_kept() -> None:
    add_job(IndexEntry("old", "sagemaker", 1.0), {"cost": 2.5, "currency": "EUR", "status": "Completed"})
    with closing(sqlite3.connect(state_home() / "index.db")) as database, database:
        for column in ("plan_error", "plan_cost_error"):
            database.execute(f"ALTER TABLE history DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 4")
    assert list_jobs() == [IndexEntry("old", "sagemaker", 1.0)]
    [job] = query("plan_error == None", up_to_date=False)
    assert (job.cost, job.currency, job.plan_error) == (2.5, "EUR", None)


def test_the_jobs_of_version_1_are_kept() -> None:
    with sqlite3.connect(state_home() / "index.db") as database:
        database.execute(
            "CREATE TABLE jobs (name TEXT, platform TEXT, submitted_at REAL, PRIMARY KEY (name, platform))"
        )
        database.execute("INSERT INTO jobs VALUES ('old', 'sagemaker', 1.0)")
    assert find_job("old") == IndexEntry("old", "sagemaker", 1.0)
    add_job(IndexEntry("new", "sagemaker", 2.0))
    assert [entry.name for entry in list_jobs()] == ["new", "old"]
