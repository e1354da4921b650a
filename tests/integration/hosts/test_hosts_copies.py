"""A host is lost with its memory: the training continues from its last copy on another host."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hosts_job import LAUNCHES, HostsJob
from linked_hosts import linked

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.files import VARIABLE
from cloudtrain.runtime.checkpoint_copies import held_folders, newest_in

SCRIPT = """
    import os, time
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer(os.environ["URI"], every=1000, memory_every=1, save_at_end=False)
    checkpoint = checkpointer.restore({restore})
    first, weights = 1, np.zeros({size})
    if checkpoint:
        first, weights = checkpoint.step + 1, checkpoint.state["weights"]
        print("resumed from", checkpoint.step, "in", checkpoint.source, flush=True)
    last = 1000 if first == 1 else first + 10
    for step in range(first, last + 1):
        weights += step
        time.sleep(0.05)
        checkpointer.maybe_save(step, {{"weights": weights}})
        print("step", step, flush=True)
    assert set(weights) == {{last * (last + 1) / 2}}
"""

Begin = Callable[..., HostsJob]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts the training on so many hosts; each has its own memory, in ``begin.shared``."""
    with ExitStack() as stack:
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))

        def begin(hosts: int, restore: str = "", size: int = 1000) -> HostsJob:
            machines = stack.enter_context(linked(hosts, tmp_path))
            for machine in machines:
                (shared / machine.name).mkdir()
            job = HostsJob(
                machines,
                tmp_path,
                SCRIPT.format(restore=restore, size=size),
                LAUNCHES["processes"],
                environment={"URI": str(tmp_path / "run"), "CLOUDTRAIN_HOST_TIMEOUT": "5"},
                of={machine.name: {VARIABLE: str(shared / machine.name)} for machine in machines},
            )
            job.shared = shared  # type: ignore[attr-defined]
            stack.callback(job.kill)
            return job

        yield begin


def memory(job: HostsJob, host: str) -> Path:
    [folder] = (job.shared / host).iterdir()  # type: ignore[attr-defined]
    found: Path = folder
    return found


def held(job: HostsJob, host: str, owner: str = "n1") -> int:
    """The newest step that ``host`` holds for ``owner``."""
    try:
        folder = held_folders(memory(job, host)).get(owner)
        return max((header.step for _, header in newest_in(folder).values()), default=-1) if folder else -1
    except (OSError, ValueError):
        return -1


def wait_for_copies(job: HostsJob, host: str, step: int = 5) -> None:
    deadline = time.monotonic() + 120
    while held(job, host) < step:
        assert time.monotonic() < deadline, job.output()
        time.sleep(0.02)


def last_step(job: HostsJob) -> int:
    return max(map(int, re.findall(r"rank 0\] step (\d+)", job.part("n1").output())))


def lose(job: HostsJob, *hosts: str) -> None:
    """The hosts end together, with their memory."""
    folders = [memory(job, host) for host in hosts]
    for host in hosts:
        job.part(host).program.kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("restore", ["", "alone=True"])
def test_a_lost_host_loses_no_more_than_the_steps_since_its_last_copy(
    begin: Begin, tmp_path: Path, restore: str
) -> None:
    job = begin(2, restore)
    wait_for_copies(job, "n2")
    copied = held(job, "n2")
    lose(job, "n1")
    done = last_step(job)
    job.wait(60)
    [step] = Checkpointer(tmp_path / "run").steps()
    assert copied <= step <= done + 1, job.output()
    assert f"checkpoint {step}, which was in the memory of this host, for n1, is committed" in job.output()
    job.start()
    assert job.wait(90) == [0, 0], job.output()
    assert f"resumed from {step} in the memory of this host" in job.part("n1").output()
    assert [*job.shared.glob("*/*")] == []  # type: ignore[attr-defined]


@pytest.mark.soak
@pytest.mark.parametrize("lost", [("n1",), ("n1", "n2"), ("n1", "n4")])
def test_one_or_two_of_four_hosts_are_lost(begin: Begin, tmp_path: Path, lost: tuple[str, ...]) -> None:
    job = begin(4, size=1 << 20)
    wait_for_copies(job, "n3", 3)
    copied = held(job, "n3")
    lose(job, *lost)
    done = last_step(job)
    job.wait(90)
    [step] = Checkpointer(tmp_path / "run").steps()
    assert copied <= step <= done + 1, job.output()
    job.start()
    assert job.wait(120) == [0] * 4, job.output()
    assert f"resumed from {step} in the memory of this host" in job.part("n1").output()


@pytest.mark.soak
@pytest.mark.parametrize("how", ["cable", "paused"])
def test_the_holder_is_cut_off_in_the_middle_of_a_copy(begin: Begin, tmp_path: Path, how: str) -> None:
    """The owner continues to save, and commits its own copy; what was cut off is not a copy."""
    job = begin(2, size=1 << 22)
    wait_for_copies(job, "n2", 2)
    holder = job.part("n2")
    if how == "cable":
        holder.machine.unplug()
    else:
        os.kill(holder.program.first_process, signal.SIGSTOP)
    before = last_step(job)
    job.part("n1").program.wait(90)
    assert last_step(job) > before
    assert Checkpointer(tmp_path / "run").steps()[-1] > before
    if how == "paused":
        os.kill(holder.program.first_process, signal.SIGCONT)
    else:
        holder.machine.plug()
    assert holder.program.wait(90) != 0
    job.start()
    assert job.wait(120) == [0, 0], job.output()
