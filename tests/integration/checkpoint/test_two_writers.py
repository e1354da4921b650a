"""Two runs that save to one URI by mistake: one of them fails, and nothing is mixed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pure_state import same, state_of

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import committed_step
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import open_store

ROUNDS = 8


def test_one_of_two_wins_and_the_other_fails(uri: str) -> None:
    writers = [Checkpointer(uri, keep=None, asynchronous=False) for _ in (0, 1)]
    start = Barrier(2)

    def attempt(writer: int, step: int) -> CheckpointError | None:
        state = {**state_of(step), "writer": writer}
        start.wait()
        try:
            writers[writer].save(step, state)
        except CheckpointError as error:
            return error
        return None

    for step in range(1, ROUNDS + 1):
        with ThreadPoolExecutor(2) as pool:
            errors = list(pool.map(attempt, (0, 1), (step, step)))
        winner = errors.index(None)
        failure = errors[1 - winner]
        assert failure is not None
        assert "uri" in failure.hint
        checkpoint = Checkpointer(uri).restore()
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.state["writer"]) == (step, winner)
        assert same(checkpoint.state, state_of(step))

    # The losers deleted what they had written: one save per step is left.
    keys = [entry.key for entry in open_store(uri).list()]
    saves = [key.rpartition("/")[0] for key in keys if committed_step(key) is None]
    assert len(set(saves)) == ROUNDS


def test_a_second_run_that_does_not_resume_fails_before_it_writes(uri: str) -> None:
    Checkpointer(uri, asynchronous=False).save(5, state_of(5))
    before = list(open_store(uri).list())
    with pytest.raises(CheckpointError, match="which already has step 5"):
        Checkpointer(uri, asynchronous=False).save(4, state_of(4))
    assert list(open_store(uri).list()) == before
