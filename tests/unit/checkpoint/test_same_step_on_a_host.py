"""Ranks of one host that restore without a process group compare what they have restored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.checkpoint.same_step import SameStep
from cloudtrain.errors import CheckpointError

Rank = Callable[[int], SameStep]


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rank:
    """Makes this process another rank."""
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")

    def rank(number: int) -> SameStep:
        monkeypatch.setenv("RANK", str(number))
        return SameStep("s3://bucket/run")

    return rank


def test_another_step_than_that_of_the_rank_before_is_refused(rank: Rank) -> None:
    rank(0).check("latest", 17)
    rank(1).check("latest", 17)
    with pytest.raises(CheckpointError, match=r"rank 0 has restored step 17 from .*, but this rank step 10"):
        rank(1).check("latest", 10)
    rank(1).check("best", 3)


def test_after_a_save_the_steps_may_differ(rank: Rank) -> None:
    first = rank(0)
    first.check("latest", None)
    first.saving()
    rank(1).check("latest", 5)


def test_of_ranks_that_restore_together_one_is_the_first(rank: Rank) -> None:
    refused: list[str] = []

    def restore(step: int) -> None:
        try:
            SameStep("s3://bucket/run").check("latest", step)
        except CheckpointError as error:
            refused.append(error.message)

    rank(0)
    threads = [threading.Thread(target=restore, args=(step,)) for step in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1


def test_a_folder_that_is_gone_ends_no_restore(rank: Rank, tmp_path: Path) -> None:
    tmp_path.rmdir()
    rank(0).check("latest", 1)
    rank(0).saving()
