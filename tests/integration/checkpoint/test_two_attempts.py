"""Two attempts of a job save to one URI: the earlier one was paused, and its host was given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from cloudtrain.checkpoint import Checkpointer

TRAINING = """
import os, signal, sys, threading
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.errors import CheckpointError

checkpointer = Checkpointer(sys.argv[1], asynchronous=False, keep=2)
store = checkpointer._stores[0]._store
create = store.create

def paused_at(key, data):  # as if the machine had stopped here
    if key == manifest_key(int(sys.argv[2])):
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread does nothing more
    return create(key, data)

store.create = paused_at
checkpoint = checkpointer.restore()
print("restored", checkpoint and checkpoint.step, flush=True)
for line in sys.stdin:
    step, attempt = int(line), os.environ["CLOUDTRAIN_ATTEMPT_ID"]
    try:
        checkpointer.save(step, {"step": step, "attempt": attempt, "weights": [float(step)] * 8})
        print("saved", step, flush=True)
    except CheckpointError as error:
        print(error.message, flush=True)
"""


class Training:
    """One attempt. It stops before it commits ``pause``."""

    def __init__(self, uri: str, attempt: int, pause: int = -1, run: str = "job-1", *, counted: bool) -> None:
        variables = {"CLOUDTRAIN_RUN_ID": run, "CLOUDTRAIN_ATTEMPT_ID": str(attempt)}
        if counted:
            variables["CLOUDTRAIN_ATTEMPT"] = str(attempt)
        self._process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, uri, str(pause)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.restored = self.answer()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            pass

    def answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def begin(self, step: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()

    def save(self, step: int) -> str:
        self.begin(step)
        return self.answer()

    def wait_until_paused(self) -> None:
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def wake(self) -> str:
        self._process.send_signal(signal.SIGCONT)
        return self.answer()


@pytest.fixture(params=["counted", "uncounted"])
def begin(uri: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Training]]:
    counted = request.param == "counted"
    with ExitStack() as stack:
        yield lambda attempt, **options: stack.enter_context(
            Training(uri, attempt, counted=counted, **options)
        )


def test_an_attempt_that_wakes_neither_ends_the_next_one_nor_saves(
    begin: Callable[..., Training], uri: str
) -> None:
    """It commits a step after the next attempt has restored the one before."""
    earlier = begin(0, pause=3)
    assert [earlier.restored, earlier.save(1), earlier.save(2)] == ["restored None", "saved 1", "saved 2"]
    earlier.begin(3)
    earlier.wait_until_paused()
    later = begin(1, pause=4)
    assert later.restored == "restored 2"
    assert earlier.wake() == "saved 3"
    assert begin(1).restored == "restored 2", "another rank restores later"
    taken_over = "attempt 1 of this job has taken over from this one, attempt 0"
    assert earlier.save(4) == f"checkpoint 4 was not saved: {taken_over}"
    assert later.save(3) == "saved 3"
    later.begin(4)
    later.wait_until_paused()  # as its predecessor
    last = begin(2)
    assert last.restored == "restored 3"
    assert later.wake() == "saved 4"
    assert [last.save(4), last.save(5)] == ["saved 4", "saved 5"]
    found = {step: Checkpointer(uri).restore(step) for step in Checkpointer(uri).steps()}
    assert {step: one.state["attempt"] for step, one in found.items() if one} == {4: "2", 5: "2"}


def test_two_jobs_that_share_a_uri_are_refused(begin: Callable[..., Training]) -> None:
    one = begin(1)
    assert one.save(1) == "saved 1"
    other = begin(2, run="job-2")
    assert [other.restored, other.save(2)] == ["restored 1", "saved 2"]
    assert "another run has saved step 2 in " in one.save(3)
