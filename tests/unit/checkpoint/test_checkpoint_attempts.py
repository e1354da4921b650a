"""A later attempt of a job takes over: an earlier one, whose host was only paused, commits nothing more."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.checkpoint.store.store import CheckpointStore
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import open_store

TAKEN_OVER = "attempt 1 of this job has taken over from this one, attempt 0"


@pytest.fixture(autouse=True)
def _outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "CLOUDTRAIN_CHECKPOINT_MEMORY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Begin an attempt: its Checkpointer."""

    def begin(attempt: int | str | None, run: str = "job", **options: Any) -> Checkpointer:
        number, identity = ("", attempt) if isinstance(attempt, str) else (attempt, "")
        monkeypatch.setenv("CLOUDTRAIN_RUN_ID", run)
        monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", "" if number is None else str(number))
        monkeypatch.setenv("CLOUDTRAIN_ATTEMPT_ID", identity)
        return Checkpointer(tmp_path / "run", **{"asynchronous": False, **options})

    return begin


def state(step: int, attempt: int | str) -> dict[str, Any]:
    return {"step": step, "attempt": attempt, "weights": [float(step)] * 8}


class Paused:
    """A save that pauses immediately before it commits, after it has looked for later attempts."""

    def __init__(self, checkpointer: Checkpointer, step: int) -> None:
        store: Any = checkpointer._stores[0]._store
        create, reached = store.create, threading.Event()

        def paused(*given: Any) -> bool:
            reached.set()
            assert self._continues.wait(60)
            store.create = create
            return bool(create(*given))

        store.create = paused
        self._continues = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._save = self._pool.submit(checkpointer.save, step, state(step, 0))
        assert reached.wait(60)

    def wake(self) -> None:
        self._continues.set()
        assert self._save.result(60)
        self._pool.shutdown()


def content(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("CLOUDTRAIN_ATTEMPT", "CLOUDTRAIN_ATTEMPT_ID"):
        monkeypatch.delenv(name, raising=False)
    restored = Checkpointer(tmp_path / "run").restore(step)
    assert restored is not None
    return restored.state["attempt"]


def test_the_first_attempt_writes_no_record(begin: Any, tmp_path: Path) -> None:
    checkpointer = begin(0)
    assert checkpointer.restore() is None
    checkpointer.save(1, state(1, 0))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-000000000001"]
    manifest = json.loads((tmp_path / "run/step-000000000001/manifest.json").read_bytes())
    assert (manifest["run"], manifest["attempt"]) == ("job", 0)


def test_an_earlier_attempt_neither_saves_nor_restores(begin: Any) -> None:
    earlier = begin(0)
    earlier.save(1, state(1, 0))
    later = begin(1)
    assert later.restore().step == 1
    with pytest.raises(CheckpointError, match=TAKEN_OVER):
        earlier.save(2, state(2, 0))
    with pytest.raises(CheckpointError, match=TAKEN_OVER):
        earlier.restore()
    later.save(2, state(2, 1))
    assert begin(1).restore().state == state(2, 1)


def test_a_later_attempt_that_saves_first_has_taken_over_too(begin: Any) -> None:
    earlier, later = begin(0), begin(1)
    later.save(1, state(1, 1))
    with pytest.raises(CheckpointError, match=TAKEN_OVER):
        earlier.save(2, state(2, 0))


@pytest.mark.parametrize("step", [3, 5, 9])
def test_what_an_earlier_attempt_still_commits_is_replaced(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """It had looked before the later one began, and continued afterwards."""
    earlier = begin(0)
    earlier.save(2, state(2, 0))
    paused = Paused(earlier, step)
    later = begin(1, keep=None)
    assert later.restore().step == 2
    paused.wake()
    assert begin(1).restore().step == 2, "another rank restores a moment later"
    assert begin(1).steps() == [2]
    for number in range(3, 8):
        later.save(number, state(number, 1))
    assert begin(2).steps() == [2, 3, 4, 5, 6, 7]
    for number in range(3, 8):
        assert content(tmp_path, number, monkeypatch) == 1


def test_a_later_attempt_commits_between_two_steps_of_a_save(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = begin(0)
    earlier.save(2, state(2, 0))
    early = Paused(earlier, 3)
    later = begin(1)
    later.restore()
    late = Paused(later, 3)
    early.wake()
    late.wake()
    later.save(4, state(4, 1))
    assert later.steps() == [2, 3, 4]
    assert content(tmp_path, 4, monkeypatch) == 1


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_an_hour_later(begin: Any, tmp_path: Path, keep: int) -> None:
    """The step has been saved and deleted by the later attempt. The earlier one deletes nothing any more."""
    earlier = begin(0, keep=keep)
    earlier.save(2, state(2, 0))
    paused = Paused(earlier, 4)
    later = begin(1, keep=keep)
    later.restore()
    for number in range(3, 9):
        later.save(number, state(number, 1))
    kept = later.steps()
    paused.wake()
    assert later.steps() == kept
    for number in range(9, 12):
        later.save(number, state(number, 1))
    assert later.steps() == [9, 10, 11][3 - keep :]
    assert {path.name for path in (tmp_path / "run").glob("step-*")} == {
        f"step-{step:012d}" for step in later.steps()
    }


def test_what_is_restored_is_not_deleted_meanwhile(begin: Any) -> None:
    """The earlier attempt keeps one checkpoint, and commits another after the later one has looked."""
    earlier = begin(0, keep=1)
    earlier.save(2, state(2, 0))
    paused = Paused(earlier, 3)
    later = begin(1, keep=1)
    assert later.steps() == [2]
    paused.wake()
    assert later.restore().step == 2


@pytest.mark.parametrize("saves", [False, True])
def test_a_third_attempt_does_not_restore_it_either(begin: Any, saves: bool) -> None:
    earlier = begin(0)
    earlier.save(2, state(2, 0))
    paused = Paused(earlier, 4)
    second = begin(1)
    assert second.restore().step == 2
    if saves:
        second.save(3, state(3, 1))
    paused.wake()
    third = begin(2)
    last = 3 if saves else 2
    assert third.restore().step == last
    third.save(4, state(4, 2))
    assert third.steps() == ([2, 3, 4] if saves else [2, 4])
    with pytest.raises(
        CheckpointError, match="attempt 2 of this job has taken over from this one, attempt 0"
    ):
        earlier.save(5, state(5, 0))


def test_what_was_committed_before_is_kept(begin: Any) -> None:
    """A script that does not restore fails, as ever."""
    begin(0).save(7, state(7, 0))
    with pytest.raises(CheckpointError, match=r"step 1 cannot be saved in .*, which already has step 7"):
        begin(1).save(1, state(1, 1))
    assert begin(2).restore().step == 7


def test_two_jobs_at_one_uri_are_refused_as_before(begin: Any) -> None:
    one = begin(3, "one")
    one.save(1, state(1, 0))
    other = begin(0, "other")
    assert other.restore().step == 1
    other.save(2, state(2, 0))
    with pytest.raises(CheckpointError, match="another run has saved step 2 in"):
        one.save(3, state(3, 0))


def test_a_process_without_an_attempt_is_not_held(begin: Any, tmp_path: Path) -> None:
    begin(0).save(1, state(1, 0))
    begin(1).restore()
    alone = begin(None)
    assert alone.restore().step == 1
    alone.save(2, state(2, 0))
    assert Checkpointer(tmp_path / "run").steps() == [1, 2]


def test_reading_the_checkpoints_of_another_job_writes_nothing(begin: Any, tmp_path: Path) -> None:
    begin(0, "teacher").save(1, state(1, 0))
    assert begin(1, "student").restore().step == 1
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-000000000001"]


def test_a_runtime_commits_copies_of_earlier_attempts_as_its_own(begin: Any, tmp_path: Path) -> None:
    """They are what this attempt has resumed from."""
    begin(0).save(1, state(1, 0))
    begin(1).restore()
    attempt = Attempt("job", 1)
    store = CheckpointStore(open_store((tmp_path / "run").as_uri()), RetentionPolicy(None, None), attempt)
    assert store.steps() == (1,)
    assert Attempt.of({"CLOUDTRAIN_RUN_ID": "job", "CLOUDTRAIN_ATTEMPT": "1"}) == attempt
    assert Attempt.of({"CLOUDTRAIN_ATTEMPT": "1"}) is None


def test_damaged_records(begin: Any, tmp_path: Path) -> None:
    begin(0).save(1, state(1, 0))
    begin(1).restore()
    for record in (tmp_path / "run").glob("attempts/*/*-steps.json"):
        record.write_bytes(b"[")
    later = begin(1)
    assert later.restore().step == 1
    later.save(2, state(2, 1))


def test_a_store_that_cannot_be_written_to_can_be_restored_from(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(0).save(1, state(1, 0))
    later = begin(1)

    def refuse(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.link", refuse)
        assert later.restore().step == 1
        with pytest.raises(CheckpointError, match="Permission denied"):
            later.save(2, state(2, 1))


def test_uncounted_attempts_find_their_numbers(begin: Any, tmp_path: Path) -> None:
    """All ranks of an attempt have one number, whichever of them comes first, and at any time."""
    first, first_rank_1 = begin("a"), begin("a")
    assert first.restore() is first_rank_1.restore() is None
    first.save(1, state(1, "a"))
    second = begin("b")
    assert second.restore().step == 1
    with pytest.raises(CheckpointError, match=TAKEN_OVER):
        first.save(2, state(2, "a"))
    with pytest.raises(CheckpointError, match=TAKEN_OVER):
        begin("a").restore()
    third = begin("c")
    assert third.restore().step == 1
    for late in ("a", "b"):
        with pytest.raises(CheckpointError, match="attempt 2 of this job has taken over from this one"):
            begin(late).restore()
    with pytest.raises(CheckpointError, match=r"attempt 2 .* from this one, attempt 1"):
        second.save(2, state(2, "b"))
    begin("c").save(2, state(2, "c"))
    manifest = json.loads((tmp_path / "run/step-000000000002/manifest.json").read_bytes())
    assert (manifest["run"], manifest["attempt"]) == ("job", 2)
    records = sorted(path.name for path in (tmp_path / "run").glob("attempts/*/*"))
    assert records == ["000002-steps.json", "000002.json"]


def test_what_an_attempt_that_is_not_counted_still_commits_is_replaced(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = begin("a")
    earlier.save(2, state(2, "a"))
    paused = Paused(earlier, 3)
    later = begin("b")
    assert later.restore().step == 2
    paused.wake()
    assert begin("b").restore().step == 2
    later.save(3, state(3, "b"))
    assert content(tmp_path, 3, monkeypatch) == "b"


def test_many_ranks_of_two_attempts_begin_together(begin: Any, tmp_path: Path) -> None:
    """Each attempt gets one number, and one of them takes over."""
    begin("a").save(1, state(1, "a"))
    ranks = [begin("bc"[rank % 2]) for rank in range(16)]

    def restore(rank: Checkpointer) -> str:
        try:
            restored = rank.restore()
            return f"step {restored and restored.step}"
        except CheckpointError as error:
            return error.message

    with ThreadPoolExecutor(len(ranks)) as pool:
        list(pool.map(restore, ranks))
        ends = list(pool.map(restore, ranks))
    taken_over = "attempt 2 of this job has taken over from this one, attempt 1"
    assert sorted((*ends[0::2][:1], *ends[1::2][:1])) == [taken_over, "step 1"]
    assert set(map(len, (set(ends[0::2]), set(ends[1::2])))) == {1}


def test_a_list_that_lacks_the_last_record(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a folder while another rank of the attempt adds a record, and removes the one before."""
    for attempt in ("a", "b"):
        begin(attempt).restore()
    last = begin("c")
    attempts = last._stores[0]._attempts
    numbers, lists = attempts._numbers, [list[int]()]
    monkeypatch.setattr(attempts, "_numbers", lambda: lists.pop() if lists else numbers())
    last.save(1, state(1, "c"))
    assert attempts.number == 2
    assert begin("c").restore().step == 1
    with pytest.raises(
        CheckpointError, match="attempt 2 of this job has taken over from this one, attempt 1"
    ):
        begin("b").restore()


def test_a_damaged_record_of_an_attempt_that_is_not_counted(begin: Any, tmp_path: Path) -> None:
    begin("a").save(1, state(1, "a"))
    for record in (tmp_path / "run").glob("attempts/*/*.json"):
        record.write_bytes(b"[")
    assert begin("b").restore().step == 1
    begin("b").save(2, state(2, "b"))


def test_reading_for_an_attempt_that_is_not_counted_writes_nothing(begin: Any, tmp_path: Path) -> None:
    begin("a", "teacher").save(1, state(1, "a"))
    before = sorted(tmp_path.rglob("*"))
    assert begin("b", "student").restore().step == 1
    assert sorted(tmp_path.rglob("*")) == before
