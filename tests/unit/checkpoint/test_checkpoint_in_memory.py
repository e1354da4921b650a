"""The copies in memory: which one is restored, which one is committed, and when there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from host_memory import make_host_memory

from cloudtrain.checkpoint import Checkpointer, Shard, candidates
from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.checkpoint.format.manifest import TOMBSTONE
from cloudtrain.checkpoint.memory.commit import commit_newest
from cloudtrain.checkpoint.memory.committed import write_committed
from cloudtrain.checkpoint.memory.files import SPACE, VARIABLE
from cloudtrain.checkpoint.memory.header import Header
from cloudtrain.checkpoint.memory.source import WHERE, checkpoints_in
from cloudtrain.errors import CheckpointError

MEMORY = "memory"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The memory folder of this host, with much space."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return make_host_memory(tmp_path / MEMORY, monkeypatch)


def state(step: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(3000, step), "bias": np.arange(step, step + 8, dtype=np.float32)}


def copied(uri: Path | str, *steps: int) -> Checkpointer:
    """The Checkpointer of a process that saved these steps to memory."""
    checkpointer = Checkpointer(uri)
    for step in steps:
        assert checkpointer.save(step, state(step), {"loss": 1 / step}, to="memory")
        checkpointer._sealing.wait()
    return checkpointer


def committed(folder: Path) -> list[str]:
    return [message for _, message in commit_newest(folder, None)]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    with open(path, "r+b") as file:  # in place, as the memory itself would
        file.write(data)


def test_the_newest_copy_is_restored(memory: Path, tmp_path: Path) -> None:
    copied(tmp_path / "run", 1, 2, 3)
    assert len(list(memory.glob("*.data"))) == 2
    into = state(9)
    checkpoint = Checkpointer(tmp_path / "run").restore(into=into)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.source, checkpoint.metrics) == (3, WHERE, {"loss": 1 / 3})
    assert checkpoint.state["weights"] is into["weights"]
    assert np.array_equal(into["weights"], state(3)["weights"])
    assert Checkpointer(tmp_path / "run").restore(2) is not None
    assert Checkpointer(tmp_path / "other").restore() is None


def test_a_save_to_the_storage_is_in_memory_too(memory: Path, tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(4, state(4))
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and restored.source == WHERE
    assert committed(memory) == []


def test_the_storage_may_have_a_newer_one(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(tmp_path / "run", 5)
    monkeypatch.delenv(VARIABLE)
    Checkpointer(tmp_path / "run", asynchronous=False).save(6, state(6))
    monkeypatch.setenv(VARIABLE, str(memory))
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and (restored.step, restored.source) == (6, (tmp_path / "run").as_uri())
    assert committed(memory) == []
    assert Checkpointer(tmp_path / "run").steps() == [6]


def test_the_newest_copy_is_committed(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Checkpointer(tmp_path / "run", asynchronous=False).save(1, {**state(1), "fixed": np.zeros(1000)})
    copied(tmp_path / "run", 2, 3)
    [message] = committed(memory)
    assert message.startswith("checkpoint 3, which was in the memory of this host, is committed in file:")
    monkeypatch.delenv(VARIABLE)
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and restored.step == 3
    assert np.array_equal(restored.state["weights"], state(3)["weights"])
    assert restored.metrics == {"loss": 1 / 3}
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.restore()
        checkpointer.save(4, state(4))
    assert Checkpointer(tmp_path / "run").steps() == [1, 3, 4]


@pytest.mark.parametrize("is_complete", [False, True])
def test_what_the_script_has_deleted_is_not_committed_again(
    memory: Path, tmp_path: Path, *, is_complete: bool
) -> None:
    """A training that has failed commits its later steps; one that is complete has cleaned up."""
    Checkpointer(tmp_path / "run", asynchronous=False).save(1, state(1))
    copied(tmp_path / "run", 2)
    shutil.rmtree(tmp_path / "run")
    [(is_good, message)] = commit_newest(memory, None, is_complete=is_complete)
    assert is_good
    if is_complete:
        uri = (tmp_path / "run").as_uri()
        assert message == f"checkpoint 1 was deleted from {uri}: step 2 in {WHERE} is not saved there"
    assert Checkpointer(tmp_path / "run").steps() == ([] if is_complete else [2])


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_deleted_checkpoint_is_not_restored_from_memory(
    memory: Path, tmp_path: Path, *, is_given_up: bool
) -> None:
    with Checkpointer(tmp_path / "run") as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, state(step))
            checkpointer.wait()
    shutil.rmtree(tmp_path / "run" / "step-000000000003")
    if is_given_up:  # by another process, which removes what is unfinished
        manifest = tmp_path / "run" / manifest_key(3)
        manifest.parent.mkdir()
        manifest.write_bytes(TOMBSTONE)
    with pytest.warns(RuntimeWarning, match="checkpoint 3 was deleted from file:"):
        restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and restored.step == 2
    assert committed(memory) == []
    if is_given_up:
        return
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.restore()
        checkpointer.save(3, state(3))
    assert Checkpointer(tmp_path / "run").steps() == [1, 2, 3]
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and (restored.step, restored.source) == (3, WHERE)


def test_a_run_that_starts_over_commits_its_own_steps(memory: Path, tmp_path: Path) -> None:
    Checkpointer(tmp_path / "run", asynchronous=False).save(9, state(9))
    shutil.rmtree(tmp_path / "run")
    copied(tmp_path / "run", 1, 2)
    assert [line.split(",")[0] for line in committed(memory)] == ["checkpoint 2"]
    assert Checkpointer(tmp_path / "run").steps() == [2]


@pytest.mark.parametrize("record", ["", "damaged"])
def test_where_nothing_is_known_of_the_storage(
    memory: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")  # where nothing answers
    monkeypatch.setattr(candidates, "AWAY_SECONDS", 0.3)
    copied("s3://bucket/run", 1)
    if record:
        write_committed(memory, "s3://bucket/run", 5)
        [path] = memory.glob("*.committed")
        flip(path, 0)
    unknown = "it is unknown whether a later checkpoint was committed there"
    with pytest.warns(RuntimeWarning, match=unknown):
        restored = Checkpointer("s3://bucket/run").restore()
    assert restored is not None and (restored.step, restored.source) == (1, WHERE)


@pytest.mark.parametrize("ending", ["data", "json"])
def test_one_flipped_bit(memory: Path, tmp_path: Path, ending: str) -> None:
    copied(tmp_path / "run", 1, 2)
    [newest] = [path for path in memory.glob("*.json") if b'"step": 2' in path.read_bytes()]
    flip(newest.with_suffix(f".{ending}"), -40)
    which = "the copy of step 2" if ending == "data" else "a copy"
    with pytest.warns(RuntimeWarning, match=f"{which} in the memory of this host is damaged: .*") as warned:
        restored = Checkpointer(tmp_path / "run").restore()
    following = "going back to the one before it" if ending == "data" else f"restoring step 1 from {WHERE}"
    assert [str(one.message).rpartition("; ")[2] for one in warned] == [following]
    assert restored is not None and (restored.step, restored.source) == (1, WHERE)
    assert np.array_equal(restored.state["weights"], state(1)["weights"])


def test_any_flipped_bit_of_a_header_is_found(memory: Path, tmp_path: Path) -> None:
    copied(tmp_path / "run", 1)
    [path] = memory.glob("*.json")
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            Header.from_bytes(bytes(flipped))
    assert Header.from_bytes(data).step == 1


def test_a_copy_with_a_damaged_header_is_reported_where_it_would_be_committed(
    memory: Path, tmp_path: Path
) -> None:
    copied(tmp_path / "run", 1)
    [path] = memory.glob("*.json")
    flip(path, 100)
    damaged = "a copy in the memory of this host is damaged: its header differs from what was written"
    assert committed(memory) == [damaged]
    assert committed(memory) == []


def test_a_damaged_copy_is_not_committed(memory: Path, tmp_path: Path) -> None:
    copied(tmp_path / "run", 1, 2)
    for path in memory.glob("*.data"):
        flip(path, 100)
    assert [message.partition(": ")[0] for message in committed(memory)] == [
        "the copy of step 2 in the memory of this host is damaged",
        "the copy of step 1 in the memory of this host is damaged",
    ]
    assert Checkpointer(tmp_path / "run").steps() == []


def test_the_same_step_in_the_storage_replaces_a_damaged_copy(memory: Path, tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(7, state(7))
    [path] = memory.glob("*.data")
    flip(path, 0)
    uri = (tmp_path / "run").as_uri()
    with pytest.warns(RuntimeWarning, match=f"is damaged: .*; restoring step 7 from {uri}"):
        restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and (restored.step, restored.source) == (7, uri)


def test_another_world_size(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(tmp_path / "run", 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert Checkpointer(tmp_path / "run").restore() is None


def test_a_run_that_starts_over_forgets_the_copies_of_the_one_before(memory: Path, tmp_path: Path) -> None:
    copied(tmp_path / "run", 8, 9)
    copied(tmp_path / "run", 1)
    assert {*checkpoints_in(memory)[(tmp_path / "run").as_uri()]} == {1}


def test_copies_after_the_restored_step_are_of_another_course(memory: Path, tmp_path: Path) -> None:
    with copied(tmp_path / "run", 1, 2) as checkpointer:
        checkpointer.restore(1)
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None and restored.step == 1


def test_a_process_that_only_restores_leaves_the_copies_of_the_training(memory: Path, tmp_path: Path) -> None:
    """The one that evaluates the best checkpoint, for example."""
    uri = tmp_path / "run"
    copied(uri, 1, 2)
    resumed = Checkpointer(uri)
    assert resumed.restore(1) is not None
    assert {*checkpoints_in(memory)[uri.as_uri()]} == {1, 2}
    assert resumed.save(2, state(5), to="memory")
    assert {*checkpoints_in(memory)[uri.as_uri()]} == {1, 2}
    restored = Checkpointer(uri).restore()
    assert restored is not None and np.array_equal(restored.state["weights"], state(5)["weights"])


def test_state_that_is_sharded_over_hosts(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        Checkpointer(tmp_path / "run", sharded=True)
    [record] = caplog.records
    assert record.message.startswith(
        "checkpoints are not kept in memory: the state is sharded over several hosts"
    )


def test_no_space(memory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpointer = copied(tmp_path / "run", 1)
    (memory / SPACE).write_text("20000")
    assert not checkpointer.save(2, state(2), to="memory")
    assert not checkpointer.save(3, state(3), to="memory")
    assert checkpointer.save(4, state(4))
    checkpointer.close()
    [record] = caplog.records
    assert record.message.startswith(
        "checkpoints are not kept in memory: a copy needs 0 MB more, and 0 MB are free"
    )
    assert os.listdir(memory) == [SPACE]
    assert Checkpointer(tmp_path / "run").steps() == [4]


def test_the_third_copy_is_not_worth_giving_up_the_others(memory: Path, tmp_path: Path) -> None:
    checkpointer = copied(tmp_path / "run", 1, 2)
    assert checkpointer._memory is not None
    uploading = checkpointer._memory.take(3)
    assert uploading is not None
    (memory / SPACE).write_text("1000")
    assert not checkpointer.save(4, state(4), to="memory")
    checkpointer._memory.release(uploading)
    assert checkpointer.save(5, state(5), to="memory")
    checkpointer.close()
    assert {*checkpoints_in(memory)[(tmp_path / "run").as_uri()]} == {2, 5}


def test_memory_that_the_runtime_has_taken_back(
    memory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = copied(tmp_path / "run", 1)
    (memory / SPACE).write_text("-1")
    assert not checkpointer.save(2, state(2), to="memory")
    assert "the memory of this host is nearly full" in caplog.text
    assert os.listdir(memory) == [SPACE]


@pytest.mark.parametrize("mode", [0o755, None])
def test_a_folder_that_others_can_read_is_not_used(memory: Path, tmp_path: Path, mode: int | None) -> None:
    if mode:
        memory.chmod(mode)
    else:
        memory.rename(tmp_path / "moved")
        memory.symlink_to(tmp_path / "moved")
    assert not Checkpointer(tmp_path / "run").save(1, state(1), to="memory")


def test_the_warning_without_a_memory_folder_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "no /dev/shm")
    Checkpointer(tmp_path / "run")
    assert [record.message for record in caplog.records] == [
        "checkpoints are not kept in memory: no /dev/shm"
    ]


def test_parts_of_different_steps_are_not_a_checkpoint(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sharded save, every rank must have the step."""
    monkeypatch.setattr("cloudtrain.checkpoint.sharded.group._rank_and_size", lambda: (0, 1))
    checkpointer = Checkpointer(tmp_path / "run", sharded=True)
    for step in (1, 2):
        shard = Shard(np.full(10, step), (10,), (0,))
        assert checkpointer.save(step, {"whole": np.full(5, step), "part": shard}, to="memory")
        checkpointer._sealing.wait()
    found = checkpoints_in(memory)[(tmp_path / "run").as_uri()]
    assert {*found} == {1, 2}
    [path] = [path for path in memory.glob("*.json") if b'"step": 2' in path.read_bytes()]
    other = found[2].header.__class__(**{**vars(found[2].header), "rank": 1, "world_size": 2})
    path.write_bytes(other.to_bytes())
    assert {*checkpoints_in(memory)[(tmp_path / "run").as_uri()]} == {1}
    assert [message.split(",")[0] for message in committed(memory)] == ["checkpoint 1"]
    restored = Checkpointer(tmp_path / "run").restore()
    assert restored is not None
    assert set(restored.state["part"]) == {1} and set(restored.state["whole"]) == {1}


def test_shards_on_several_hosts_are_not_copied(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host could neither restore nor commit its part of them."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    for local_size, is_kept in (("2", False), ("4", True)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local_size)
        assert (Checkpointer(tmp_path / "run", sharded=True)._memory is not None) is is_kept
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert Checkpointer(tmp_path / "run")._memory is not None


def test_parts_of_different_attempts_are_not_a_checkpoint(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.checkpoint.sharded.group._rank_and_size", lambda: (0, 1))
    checkpointer = Checkpointer(tmp_path / "run", sharded=True)
    shard = Shard(np.full(10, 1), (10,), (0,))
    assert checkpointer.save(1, {"part": shard}, to="memory")
    checkpointer._sealing.wait()
    [path] = memory.glob("*.json")
    fields = vars(checkpoints_in(memory)[(tmp_path / "run").as_uri()][1].header)
    for attempt, is_whole in ((1, False), (0, True)):
        for rank, of in ((0, 0), (1, attempt)):
            header = Header(**{**fields, "rank": rank, "world_size": 2, "attempt": of})
            path.with_name(path.name.replace("-0-0", f"-{rank}-0")).write_bytes(header.to_bytes())
        assert bool(checkpoints_in(memory)) is is_whole


def test_an_unknown_place(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="to='disk' is unknown"):
        Checkpointer(tmp_path).save(1, {}, to="disk")
