"""A job fails while a checkpoint is being committed: the commit may end, within the grace, and the blame stays."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from fault_places import Place, open_place
from fault_proxy import Fault, no_fault

from cloudtrain import Estimator, Job
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.platforms.local import LocalPlatform

SCRIPT = """
    import os, time
    from pathlib import Path
    import numpy as np
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.checkpoint.format import tensor_files

    tensor_files.PART_SIZE = 1 << 20
    # none fits into an object with another
    state = {{str(part): np.full(17 << 16, part, np.uint8) for part in range(8)}}
    Checkpointer().save(1, state)
    saving = Path(os.environ["SAGEMAKER_BASE_DIR"], "saving")
    if environment.rank() == 0:
        saving.touch()
    while not saving.exists():
        time.sleep(0.01)
    if environment.rank() == {failing}:
        raise ValueError("the loss is nan")
    time.sleep(100)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with open_place("s3", tmp_path) as place:
        for name, value in place.env.items():
            monkeypatch.setenv(name, value)
        yield place
        os.kill(place.server.pid, signal.SIGKILL)  # however it is


def stop_at_the_fifth_object(place: Place, stopped: Event) -> Callable[[str], Fault]:
    """The server stops in the middle of the save."""
    count = 0

    def choose(method: str) -> Fault:
        nonlocal count
        count += method == "PUT"
        if count == 5:
            os.kill(place.server.pid, signal.SIGSTOP)
            stopped.set()
        return no_fault(method)

    return choose


def start(place: Place, tmp_path: Path, failing: int, stop_grace: int, stopped: Event) -> Job:
    """Returns when the runtime knows that the script of a rank has failed. ``stopped`` is set when the server stops."""
    place.proxy.choose = stop_at_the_fifth_object(place, stopped)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT.format(failing=failing)))
    estimator = Estimator(
        str(script),
        checkpoint_s3_uri=place.uri,
        stop_grace=stop_grace,
        distribution={"processes": {"processes_per_host": 2}},
    )
    job = estimator.fit(wait=False)
    deadline = time.monotonic() + 120
    while not any(event["event"] == "rank-ended" for event in LocalPlatform().events(job.name)):
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.05)
    return job


def end_of(job: Job) -> None:
    deadline = time.monotonic() + 120
    while not job.status.is_final:
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.05)


@pytest.mark.parametrize("failing", [0, 1])
def test_the_checkpoint_is_committed(place: Place, tmp_path: Path, failing: int) -> None:
    stopped = Event()
    job = start(place, tmp_path, failing, stop_grace=60, stopped=stopped)
    assert stopped.wait(60)
    time.sleep(2)  # all that a runtime needs that does not wait
    os.kill(place.server.pid, signal.SIGCONT)
    end_of(job)
    failure = job.failure
    assert failure is not None
    assert (failure.rank, failure.exception_type, failure.message) == (
        failing,
        "ValueError",
        "the loss is nan",
    )
    checkpoint = Checkpointer(place.uri).restore()
    assert checkpoint is not None
    assert checkpoint.step == 1


def test_not_longer_than_the_grace(place: Place, tmp_path: Path) -> None:
    job = start(place, tmp_path, failing=0, stop_grace=1, stopped=Event())
    end_of(job)  # while the server is still stopped
    assert job.failure is not None
    assert job.failure.rank == 0
    os.kill(place.server.pid, signal.SIGCONT)
    place.proxy.settle()
    assert Checkpointer(place.uri).steps() == []
