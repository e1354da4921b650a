"""A failure on one rank is raised on all, and committed checkpoints survive."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from fault_proxy import Fault, FaultProxy, no_fault
from host_memory import make_host_memory
from pure_shards import same, whole_state
from shard_ranks import run, started

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import step_of
from cloudtrain.checkpoint.inspect import find
from cloudtrain.checkpoint.memory.files import data_path
from cloudtrain.checkpoint.memory.source import checkpoints_in
from cloudtrain.storage import open_store

INTERRUPTED = 75


def keys(folder: Path) -> list[str]:
    return [entry.key for entry in open_store(folder.as_uri()).list()]


def last_step(text: str) -> int:
    """The last line with a step."""
    return int(re.findall(r"^(\d+)$", text, re.MULTILINE)[-1])


def test_a_rank_that_cannot_save(tmp_path: Path) -> None:
    texts = run("steps.py", 2, "failing", str(tmp_path))
    reported = [[line for line in text.splitlines() if line.startswith("at step")] for text in texts]
    place = r"file:///.*tensors-00001-\d{5}.safetensors: File too large"
    no_state = r"state\['no state'\] cannot be saved: it is a builtins.object"
    expected = [
        [
            f"2: checkpoint 2 was not saved: rank 1: {place}",
            f"3: checkpoint 3 was not saved: rank 1: {no_state}",
        ],
        [
            f"2: checkpoint 2 was not saved: {place}",
            f"3: {no_state}",
            f"4: checkpoint 3 was not saved: {no_state}",
        ],
    ]
    for lines, patterns in zip(reported, expected, strict=True):
        assert len(lines) == len(patterns), lines
        for line, pattern in zip(lines, patterns, strict=True):
            assert re.fullmatch(f"at step {pattern}", line), line
    assert Checkpointer(str(tmp_path)).steps() == [1, 4]
    assert {step_of(key) for key in keys(tmp_path)} == {1, 4}, "a partial save was left behind"


def test_ranks_that_save_different_steps(tmp_path: Path) -> None:
    reported = run("steps.py", 2, "apart", str(tmp_path))
    assert "checkpoint 2 was not saved: rank 1: rank 1 saves step 3, and rank 0 step 2" in reported[0]
    assert "checkpoint 3 was not saved: rank 1 saves step 3, and rank 0 step 2" in reported[1]
    assert Checkpointer(str(tmp_path)).steps() == [1, 4]


def test_ranks_that_leave_the_training_at_different_steps(tmp_path: Path) -> None:
    texts = run("steps.py", 3, "leaving", str(tmp_path / "run"))
    assert "raised: rank 1 closed its Checkpointer after step 2, but this rank is at step 4" in texts[0]
    assert "raised: rank 1 closed its Checkpointer after step 2, but this rank is at step 4" in texts[2]


def test_a_rank_that_does_not_save(tmp_path: Path) -> None:
    reported = run("steps.py", 3, "absent", str(tmp_path / "run"))
    assert "checkpoint 2 was not saved: rank 1 did not save within 5 seconds" in reported[0]
    assert "checkpoint 2 was not saved: rank 0 is gone or no longer waiting" in reported[2]
    assert Checkpointer(str(tmp_path / "run")).steps() == [1]


def test_a_save_replaces_the_one_before_while_the_storage_is_away(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = tmp_path / "end"
    with FaultProxy(os.environ["AWS_ENDPOINT_URL_S3"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "300")
        with started("steps.py", 2, "restless", f"s3://{s3}/run", str(end)) as ranks:
            ranks[0].wait_for("\n3\n")
            proxy.choose = lambda method: Fault.UNAVAILABLE
            away_at = last_step(ranks[0].text)
            began = time.monotonic()
            ranks[0].wait_for(f"\n{away_at + 3}\n")
            assert time.monotonic() - began < 60
            end.touch()
            proxy.choose = no_fault
            assert [rank.process.wait(120) for rank in ranks] == [0, 0], ranks[0].text
            texts = [rank.text for rank in ranks]
        checkpoint = Checkpointer(f"s3://{s3}/run").restore()
    last = last_step(texts[0])
    assert checkpoint is not None
    assert checkpoint.step == last
    assert same(checkpoint.state, whole_state(last))
    assert all("was not saved: " in text for text in texts)


@pytest.mark.parametrize("every", ["1000", "0.3s"])
def test_a_notice_to_one_rank(uri: str, every: str) -> None:
    with started("steps.py", 3, "preempted", uri, every) as ranks:
        ranks[2].wait_for("\n15\n")
        ranks[2].process.send_signal(signal.SIGTERM)
        assert [rank.process.wait(120) for rank in ranks] == [INTERRUPTED] * 3, ranks[0].text
        last = {rank.text.split()[-1] for rank in ranks}
    checkpointer = Checkpointer(uri)
    steps = checkpointer.steps()
    assert last == {str(steps[-1])}
    assert len(steps) == 1 if every == "1000" else len(steps) > 2
    for step in steps:
        checkpoint = checkpointer.restore(step)
        assert checkpoint is not None
        assert same(checkpoint.state, whole_state(step))
    if len(steps) > 1:  # each rank stores what never changes once
        reused = [
            entry.key for entry in find(open_store(uri), steps[-1]).objects if step_of(entry.key) == steps[0]
        ]
        assert all(any(f"tensors-{rank:05d}-" in key for key in reused) for rank in range(3)), reused


def test_damage_found_by_one_rank(tmp_path: Path) -> None:
    with started("steps.py", 2, "forever", str(tmp_path)) as ranks:
        ranks[0].wait_for("\n3\n")
    newest = Checkpointer(str(tmp_path)).steps()[-1]
    shard = next(key for key in keys(tmp_path) if step_of(key) == newest and "tensors-00001-" in key)
    data = bytearray((tmp_path / shard).read_bytes())
    data[-1] ^= 1
    (tmp_path / shard).write_bytes(data)
    for text in run("steps.py", 2, "restore", str(tmp_path)):
        assert f"restored {newest - 1} " in text
        assert f"checkpoint {newest} in {tmp_path.as_uri()} is damaged" in text


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a host that keeps copies in memory."""
    return make_host_memory(tmp_path / "memory", monkeypatch)


def test_no_rank_waits_for_storage_that_is_away_to_restore_from_memory(
    s3: str, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "0")  # a rank that waits fails
    with FaultProxy(os.environ["AWS_ENDPOINT_URL_S3"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        with started("steps.py", 2, "forever", f"s3://{s3}/run") as ranks:
            ranks[0].wait_for("\n3\n")
        proxy.choose = lambda method: Fault.UNAVAILABLE
        texts = run("steps.py", 2, "restore", f"s3://{s3}/run")
    assert "does not answer; restoring from the memory of this host" in texts[0]


def test_damage_of_a_copy_in_memory_found_by_one_rank(memory: Path, tmp_path: Path) -> None:
    uri = (tmp_path / "run").as_uri()
    with started("steps.py", 2, "forever", uri) as ranks:
        ranks[0].wait_for("\n3\n")
    whole = checkpoints_in(memory)[uri]
    newest = max(whole)
    with open(data_path(whole[newest].parts[1].path), "r+b") as file:
        [byte] = file.read(1)
        file.seek(0)
        file.write(bytes([byte ^ 1]))
    texts = run("steps.py", 2, "restore", uri)
    assert all(
        f"the copy of step {newest} in the memory of this host is damaged" in text for text in texts
    ), texts
    steps = {int(re.findall(r"restored (\d+) ", text)[0]) for text in texts}
    assert len(steps) == 1 and steps <= {newest, newest - 1}, texts
