"""The copies on another host: who holds them, what counts as one, and who may send, read or commit them."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.commit import commit_newest
from cloudtrain.checkpoint.memory.committed import read_committed, write_committed
from cloudtrain.checkpoint.memory.files import SPACE, VARIABLE
from cloudtrain.link.handshake import NotAuthenticated, prove
from cloudtrain.link.secret import derive
from cloudtrain.runtime.checkpoint_copies import CheckpointCopies, held_folders, holder_of, newest_in

HOSTS = ("algo-1", "algo-2", "algo-3")
Make = Callable[..., CheckpointCopies]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made = []

    def make(host: str, *, attempt: int = 0, space: int = 1 << 30) -> CheckpointCopies:
        folder = tmp_path / host
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / SPACE).write_text(str(space))
        keys = {purpose: derive("s" * 32, purpose, attempt) for purpose in ("copies", "tls")}
        made.append(CheckpointCopies(folder, host, HOSTS, keys, on_machine=True))
        return made[-1]

    yield make
    for one in made:
        one._is_done.set()
        one.close()


def begin(*copies: CheckpointCopies, generation: str = "1") -> None:
    offers = {one._host: one.offer for one in copies}
    for one in copies:
        one.serve(offers, generation)


def save(folder: Path, uri: Path, steps: range, monkeypatch: pytest.MonkeyPatch, size: int = 1000) -> None:
    """A rank saves to the memory of its host."""
    monkeypatch.setenv(VARIABLE, str(folder))
    checkpointer = Checkpointer(uri, save_at_end=False)
    checkpointer.restore()
    for step in steps:
        assert checkpointer.save(step, {"weights": np.full(size, float(step))}, to="memory")
        checkpointer._sealing.wait()
    checkpointer.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def held(folder: Path, host: str = "algo-1") -> list[int]:
    found = held_folders(folder).get(host)
    return [header.step for _, header in newest_in(found).values()] if found else []


def with_held_copy(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> tuple[CheckpointCopies, CheckpointCopies]:
    """An owner that has saved one step, and the host that holds a copy of it."""
    owner, holder = make("algo-1"), make("algo-2")
    begin(owner, holder)
    owner.start()
    save(tmp_path / "algo-1", tmp_path / "run", range(step, step + 1), monkeypatch)
    until(lambda: held(tmp_path / "algo-2") == [step])
    return owner, holder


def test_the_holder_is_half_of_the_hosts_away() -> None:
    for count in range(2, 50):
        hosts = [f"algo-{number}" for number in range(count)]
        holders = [holder_of(host, hosts) for host in hosts]
        assert sorted(holders) == sorted(hosts)
        assert all(host != holder for host, holder in zip(hosts, holders, strict=True))


def test_a_lost_host_is_committed_by_its_holder_and_gets_its_copy_back(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, holder = make("algo-1"), make("algo-2")
    begin(owner, holder)
    owner.start()
    save(tmp_path / "algo-1", tmp_path / "run", range(1, 6), monkeypatch, 1 << 19)
    until(lambda: held(tmp_path / "algo-2") == [5])
    assert list(holder.lost_owners(0.1)) == [("algo-1", tmp_path / "algo-2" / "held-algo-1")]  # it is paused
    holder._owners["algo-1"].is_connected = False
    [(host, folder)] = holder.lost_owners()
    assert host == "algo-1"
    assert [is_committed for is_committed, _ in commit_newest(folder, None, "x")] == [True]
    assert Checkpointer(tmp_path / "run").steps() == [5]
    uri = (tmp_path / "run").as_uri()
    assert read_committed(folder, uri) == 5

    for path in (tmp_path / "algo-1").iterdir():
        path.unlink()
    again, holder = make("algo-1", attempt=1), make("algo-2", attempt=1)
    begin(again, holder, generation="2")
    assert list(again.get()) == []
    assert read_committed(tmp_path / "algo-1", uri) == 5
    monkeypatch.setenv(VARIABLE, str(tmp_path / "algo-1"))
    checkpoint = Checkpointer(tmp_path / "run").restore()
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.source) == (5, "the memory of this host")


def test_the_newest_committed_step_is_sent_with_the_copies(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, holder = with_held_copy(make, tmp_path, monkeypatch, 3)
    own, uri = tmp_path / "algo-1", (tmp_path / "run").as_uri()
    for step in (7, 5, None):
        write_committed(own, uri, step)
        until(lambda: read_committed(held_folders(tmp_path / "algo-2")["algo-1"], uri) == step)  # noqa: B023
    write_committed(own, uri, 7)
    until(lambda: read_committed(held_folders(tmp_path / "algo-2")["algo-1"], uri) == 7)
    owner.done()
    write_committed(own, uri, 4)
    again, holder = make("algo-1", attempt=1), make("algo-2", attempt=1)
    begin(again, holder, generation="2")
    assert list(again.get()) == []
    assert read_committed(own, uri) == 7


def test_an_owner_that_has_committed_is_left_alone(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, holder = with_held_copy(make, tmp_path, monkeypatch, 1)
    owner.done()
    assert list(holder.lost_owners()) == []


@pytest.mark.parametrize("seed", range(8))
def test_one_flipped_bit_anywhere_in_a_held_copy_is_found(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    _, holder = with_held_copy(make, tmp_path, monkeypatch, 1)
    generator = random.Random(seed)
    ending = generator.choice(["json", "data"])
    [path] = held_folders(tmp_path / "algo-2")["algo-1"].glob(f"*.{ending}")
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)
    for own in (tmp_path / "algo-1").iterdir():
        own.unlink()
    (tmp_path / "algo-1" / SPACE).write_text(str(1 << 30))
    again = make("algo-1")
    again.serve({"algo-2": holder.offer}, "1")
    problems = list(again.get())
    assert newest_in(tmp_path / "algo-1") == {}
    [problem] = problems
    assert problem.startswith("a copy in the memory of algo-2 is damaged: ")


def test_an_own_damaged_copy_is_replaced_by_the_held_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, holder = with_held_copy(make, tmp_path, monkeypatch, 3)
    [path] = (tmp_path / "algo-1").glob("*.data")
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    again = make("algo-1")
    again.serve({"algo-2": holder.offer}, "1")
    [problem] = again.get()
    assert problem.startswith("the copy of step 3 in the memory of this host is damaged: ")
    checkpoint = Checkpointer(tmp_path / "run").restore()
    assert checkpoint is not None
    assert set(checkpoint.state["weights"]) == {3.0}


def test_a_holder_without_space_refuses_a_copy_and_holds_later_ones(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, holder = make("algo-1"), make("algo-2", space=100)
    begin(owner, holder)
    owner.start()
    save(tmp_path / "algo-1", tmp_path / "run", range(1, 2), monkeypatch)
    until(lambda: owner._sent)
    assert held(tmp_path / "algo-2") == []
    (tmp_path / "algo-2" / SPACE).write_text(str(1 << 30))
    save(tmp_path / "algo-1", tmp_path / "run", range(2, 3), monkeypatch)
    until(lambda: held(tmp_path / "algo-2") == [2])


def test_an_earlier_course_is_forgotten(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, holder = make("algo-1"), make("algo-2")
    begin(owner, holder)
    owner.start()
    save(tmp_path / "algo-1", tmp_path / "run", range(7, 8), monkeypatch)
    until(lambda: held(tmp_path / "algo-2") == [7])
    for path in (tmp_path / "algo-1").glob("*.json"):
        path.unlink()
    save(tmp_path / "algo-1", tmp_path / "run", range(4, 5), monkeypatch)
    until(lambda: held(tmp_path / "algo-2") == [4])


def test_strangers_and_hosts_of_another_attempt_get_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, holder = with_held_copy(make, tmp_path, monkeypatch, 1)
    with (
        socket.create_connection(("127.0.0.1", holder.port)) as connection,
        pytest.raises((NotAuthenticated, OSError)),
    ):
        prove(connection, os.urandom(32), "copies", time.monotonic() + 60)
    for arguments, generation in (({"attempt": 1}, "1"), ({}, "0")):
        stale = make("algo-1", **arguments)
        for path in (tmp_path / "algo-1").glob("*.json"):
            path.unlink()
        stale.serve({"algo-2": holder.offer}, generation)
        assert [one.startswith("the copies of this host") for one in stale.get()] == [True]
        assert newest_in(tmp_path / "algo-1") == {}
    assert held(tmp_path / "algo-2") == [1]
