"""The limits of a job whose attempts share nothing but the place of its outputs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cloudtrain.checkpoint.saved import RUNNING_TIME as KEY
from cloudtrain.contract import FailureClass, FailureReport, Settings
from cloudtrain.runtime.limits import Limits


class Attempt:
    """One attempt, on a clock that the test moves."""

    def __init__(self, uri: str, identity: str = "one", max_run: float = 100.0) -> None:
        self.now = 0.0
        self.limit = Limits(Settings(max_run=max_run, output_uri=uri), identity, lambda: self.now)

    def waits_for_its_past(self) -> None:
        while not self.limit._before:
            time.sleep(0.01)

    def runs(self, seconds: float, *, completed: bool = False) -> bool:
        """Whether the time is over after so many seconds in which all hosts ran."""
        self.limit.begin()
        self.now += seconds
        is_over = self.limit.report() is not None
        self.limit.close(completed=completed)
        return is_over


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path}/out"


def test_attempts_add_up(uri: str) -> None:
    assert not Attempt(uri).runs(60)
    second = Attempt(uri)
    second.waits_for_its_past()
    assert not second.runs(30)
    third = Attempt(uri)
    third.waits_for_its_past()
    assert third.runs(10)
    report = third.limit.report()
    assert report is not None
    assert (report.failure_class, report.exit_code) == (FailureClass.TIME_LIMIT, 124)
    assert report.message == "max_run of 100 s is over"


def test_time_before_all_hosts_run_does_not_count(uri: str) -> None:
    attempt = Attempt(uri)
    attempt.now = 1000.0
    assert not attempt.runs(99)


def test_another_job_of_the_name_begins_at_zero(uri: str, tmp_path: Path) -> None:
    Attempt(uri).runs(99)
    Attempt(uri, "two").runs(3)
    assert json.loads((tmp_path / "out" / KEY).read_text())["ran"] == 3.0


def test_nothing_is_left_of_a_completed_job(uri: str, tmp_path: Path) -> None:
    Attempt(uri).runs(50)
    Attempt(uri).runs(10, completed=True)
    assert not (tmp_path / "out" / KEY).exists()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"job": "one", "ran": "x"}', '{"job": "one", "ran": -1}', "[" * 9999]
)
def test_a_damaged_record_counts_for_nothing(uri: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / KEY).write_text(text)
    Attempt(uri).runs(5)
    assert json.loads((tmp_path / "out" / KEY).read_text())["ran"] == 5.0


def test_what_cannot_be_read_is_not_replaced(uri: str, tmp_path: Path) -> None:
    (tmp_path / "out" / KEY / "a folder").mkdir(parents=True)
    assert Attempt(uri).runs(100)
    assert (tmp_path / "out" / KEY).is_dir()


def test_a_job_that_stores_nothing_counts_this_attempt() -> None:
    assert not Attempt("").runs(99)
    assert Attempt("").runs(100)


class Lost:
    """Attempts that are lost, in a job that may lose two in a row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(
            max_preemptions=2,
            output_uri=f"file://{folder}/out",
            checkpoint_uri=f"file://{folder}/checkpoints",
        )

    def begins(self, **end: bool) -> FailureReport | None:
        """The report of an attempt that is lost, or ends as ``end`` says."""
        limits = Limits(self.settings, "one")
        limits.begin()
        limits.close(**{"completed": False, **end})
        return limits.report()

    def saves(self, key: str) -> None:
        (self.folder / "checkpoints" / key).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "checkpoints" / key).write_text("{}")


def test_a_job_that_is_lost_over_and_over_without_a_checkpoint_ends(tmp_path: Path) -> None:
    job = Lost(tmp_path)
    assert [job.begins() for _ in range(3)] == [None] * 3
    report = job.begins()
    assert report is not None
    assert (report.failure_class, report.exit_code) == (FailureClass.PREEMPTED, 124)
    assert report.message.startswith("hosts were lost 3 times in a row, and no attempt saved a checkpoint")
    assert job.begins() is not None, "and stays ended if its platform starts it again"


@pytest.mark.parametrize(
    ("key", "goes_on"),
    [("step-000000000010/manifest.json", True), ("step-000000000010/1/tree.json", False), ("model.pt", True)],
)
def test_a_checkpoint_resets_the_count(tmp_path: Path, key: str, goes_on: bool) -> None:
    job = Lost(tmp_path)
    for _ in range(3):
        job.begins()
    job.saves(key)
    assert (job.begins() is None) == goes_on


def test_a_failure_of_the_script_is_a_retry_and_no_loss(tmp_path: Path) -> None:
    job = Lost(tmp_path)
    for _ in range(3):
        job.begins()
        job.begins(failed=True)
    assert job.begins() is None


def test_checkpoints_that_cannot_be_listed_count_for_nothing(tmp_path: Path) -> None:
    job = Lost(tmp_path)
    (tmp_path / "checkpoints").write_text("not a folder")
    assert [job.begins() for _ in range(5)] == [None] * 5


@pytest.mark.parametrize(
    ("second", "is_same"),
    [
        (("KeyError in step at train.py:8", 3), True),
        (("KeyError in step at train.py:8", 4), False),
        (("KeyError in step at train.py:9", 3), False),
        (("", 3), False),
    ],
)
def test_the_same_failure_twice_is_final(uri: str, second: tuple[str, int], is_same: bool) -> None:
    """Also with an attempt in between whose host was lost."""
    ends = [("KeyError in step at train.py:8", 3), None, second]
    for number, end in enumerate(ends):
        limit = Limits(Settings(max_preemptions=9, output_uri=uri), "one")
        limit.begin()
        if end is None:
            assert not limit.close(completed=False)
        else:
            cause, step = end
            assert limit.close(completed=False, failed=True, cause=cause, step=step) == (
                number == 2 and is_same
            )
