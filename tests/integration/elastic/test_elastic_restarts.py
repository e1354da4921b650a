"""Ranks are killed during training; torchrun's agent restarts them, and training continues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import elastic_training as training
import pytest
from launching import (
    PROGRAM,
    TORCHRUN,
    Command,
    Step,
    history,
    kill_all,
    started,
    torchrun,
    wait_for,
)

import cloudtrain.distributed.torch as hvd
from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=15"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[float]]:
    """The losses of the same training in one process without interruption."""
    hvd.init()
    yield training.train(training.parse([str(tmp_path_factory.mktemp("undisturbed"))]))
    hvd.shutdown()


def check(attempts: list[list[Step]], undisturbed: list[float]) -> None:
    """The result is that of undisturbed training: within an epoch no sample is lost or repeated."""
    last = {step.number: step for step in itertools.chain.from_iterable(attempts)}
    steps = [last[number] for number in range(training.STEPS)]
    assert [step.loss for step in steps] == pytest.approx(undisturbed, rel=1e-9)
    epoch = training.STEPS // training.EPOCHS
    for first in range(0, training.STEPS, epoch):
        indices = [index for step in steps[first : first + epoch] for index in step.indices]
        assert sorted(indices) == list(range(training.SAMPLES))


def firsts(attempts: list[list[Step]]) -> list[int]:
    return [steps[0].number for steps in attempts]


@pytest.mark.soak
def test_ranks_killed_one_after_the_other(tmp_path: Path, undisturbed: list[float]) -> None:
    torchrun(tmp_path, "--kill", "1:5", "--kill", "0:13")
    attempts = history(tmp_path)
    assert firsts(attempts) == [0, 3, 12]
    check(attempts, undisturbed)
    assert len(list(tmp_path.glob("reset-*"))) == 4


def test_an_incomplete_commit_is_ignored(tmp_path: Path, undisturbed: list[float]) -> None:
    torchrun(tmp_path, "--kill-in-commit", "9")
    attempts = history(tmp_path)
    assert firsts(attempts) == [0, 6]
    check(attempts, undisturbed)
    commits = [path.name for path in tmp_path.glob("torchelastic_*/*/elastic/*")]
    assert commits == ["run-0.pt"]


def command(
    folder: Path, *options: str, slot: RankSlot | None = None, port: int = 0, **variables: str
) -> Command:
    """A rank that was not started by an agent."""
    place = slot.environment("127.0.0.1", port) if slot else {}
    return Command([str(PROGRAM), str(folder), *options], {**place, **variables})


def test_living_ranks_continue_in_their_processes(tmp_path: Path, undisturbed: list[float]) -> None:
    port = free_port()
    ranks = [command(tmp_path, "--stall=5", slot=slot, port=port) for slot in RankSlot.on_host(0, 1, 2)]
    with started(*ranks, folder=tmp_path) as processes:
        assert [process.wait(120) for process in processes] == [0, 0], (tmp_path / "output-0").read_text()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    attempts = history(tmp_path)
    assert firsts(attempts) == [0, 3]
    check(attempts, undisturbed)
    assert "restoring commit 1: " in (tmp_path / "output-0").read_text()


def test_the_newest_commit_of_any_host_is_restored(tmp_path: Path, undisturbed: list[float]) -> None:
    port = free_port()
    alone, together = [], []
    for host, killed in enumerate([5, 8]):
        (tmp_path / f"host-{host}").mkdir()
        variables = {"TORCHELASTIC_RUN_ID": "a", "CLOUDTRAIN_RUN_DIR": str(tmp_path / f"host-{host}")}
        alone.append(command(tmp_path, f"--kill=0:{killed}", **variables))
        [slot] = RankSlot.on_host(host, 2, 1)
        together.append(command(tmp_path, slot=slot, port=port, **variables))
    with started(*alone, folder=tmp_path) as processes:
        assert [process.wait(120) for process in processes] == [-9, -9]
    with started(*together, folder=tmp_path) as processes:
        assert [process.wait(120) for process in processes] == [0, 0], (tmp_path / "output-0").read_text()
    attempts = history(tmp_path)
    assert firsts(attempts) == [0, 0, 6]
    check(attempts, undisturbed)


def test_a_host_is_added_and_lost(tmp_path: Path, undisturbed: list[float]) -> None:
    """Two agents, as on two hosts."""
    agents = [
        Command([
            *TORCHRUN, "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--local-addr=127.0.0.1",
            f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf={RENDEZVOUS},is_host={is_host}",
            str(PROGRAM), str(tmp_path), "--hold=5:2", "--hold=10:1",
        ])
        for port in [free_port()]
        for is_host in (1, 0)
    ]  # fmt: skip
    with started(*agents, folder=tmp_path) as (staying, lost):
        wait_for(
            lambda: any(step.world == 2 and step.number == 9 for step in itertools.chain(*history(tmp_path)))
        )
        kill_all(lost)
        assert staying.wait(120) == 0, (tmp_path / "output-0").read_text()
    attempts = history(tmp_path)
    assert [steps[0].world for steps in attempts][-2:] == [2, 1]
    assert attempts[-1][0].number == 9
    check(attempts, undisturbed)
