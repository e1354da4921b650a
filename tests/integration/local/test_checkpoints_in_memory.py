"""Jobs whose ranks are killed resume from the copies in memory, and lose no step since the last save."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from local_jobs import TWO_RANKS, Run, folder, wait_for_end, wait_until

from cloudtrain import Job, JobStatus
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.files import VARIABLE
from cloudtrain.testing import S3Server

TRAINS = """
    import os, signal, time
    import numpy as np
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    folder, rank = os.environ["GRADIENTS"], environment.rank()

    def gradient(weights, step, rank):
        data = np.random.default_rng(1000 * step + rank)
        inputs, wanted = data.normal(size=(16, 20)), data.normal(size=16)
        return inputs.T @ (np.tanh(inputs @ weights) - wanted) / 16

    def mean_gradient(weights, step):
        place = f"{folder}/{step}-"
        np.save(f"{place}{rank}.part.npy", gradient(weights, step, rank))
        os.rename(f"{place}{rank}.part.npy", f"{place}{rank}.npy")
        while not os.path.exists(f"{place}{1 - rank}.npy"):
            time.sleep(0.005)
        return sum(np.load(f"{place}{of}.npy") for of in (0, 1)) / 2

    def advance(weights, momentum, gradient):
        momentum *= 0.9
        momentum += gradient
        weights -= 0.1 * momentum

    weights, momentum = np.ones(20), np.zeros(20)
    checkpointer = Checkpointer(every=10, memory_every=1)
    checkpoint = checkpointer.restore()
    first = 1
    if checkpoint:
        weights, momentum = checkpoint.state["weights"], checkpoint.state["momentum"]
        first = checkpoint.step + 1
        print("resumed from", checkpoint.step, "in", checkpoint.source, flush=True)
    for step in range(first, 31):
        advance(weights, momentum, mean_gradient(weights, step))
        checkpointer.maybe_save(step, {"weights": weights, "momentum": momentum})
        checkpointer._sealing.wait()
        if (step, first) == (17, 1) and rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:  # which trains once more, with the data of both ranks, without a kill
        whole, momentum = np.ones(20), np.zeros(20)
        for step in range(1, 31):
            advance(whole, momentum, sum(gradient(whole, step, of) for of in (0, 1)) / 2)
        print("the same weights:", np.array_equal(weights, whole), flush=True)
"""

PLAIN = """
    import glob, os, signal
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer({uri}every=10, memory_every=1, save_at_end=False)
    checkpoint = checkpointer.restore()
    first, weights = 1, np.zeros(1000)
    if checkpoint:
        first, weights = checkpoint.step + 1, checkpoint.state["weights"]
        print("resumed from", checkpoint.step, "in", checkpoint.source, flush=True)
    elif "SERVER" in os.environ:
        os.kill(int(os.environ["SERVER"]), signal.SIGKILL)
    for step in range(first, 31):
        weights += step
        checkpointer.maybe_save(step, {{"weights": weights}})
        if step == 10 and "SERVER" not in os.environ:
            checkpointer.wait()
        if (step, first) == (17, 1):
            {before}
            os.kill(os.getpid(), signal.SIGKILL)
    assert set(weights) == {{465}}
"""


def plain(*, uri: str = "", before: str = "pass") -> str:
    return PLAIN.format(uri=f"{uri!r}, " if uri else "", before=before.strip())


@pytest.fixture
def start(run: Run) -> Iterator[Run]:
    """Like ``run``, without waiting, with memory in which nothing may be left."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:

        def start(
            script: str, *, environment: Mapping[str, str] = MappingProxyType({}), **arguments: Any
        ) -> Job:
            return run(script, wait=False, environment={VARIABLE: shared, **environment}, **arguments)

        yield start
        wait_until(lambda: not os.listdir(shared), "the removal of the copies, after the end of the job")


def ended(job: Job) -> str:
    logs = wait_for_end(job).logs()
    assert job.status == JobStatus.COMPLETED, logs
    return logs


def test_a_killed_rank_loses_no_saved_step(start: Run, tmp_path: Path) -> None:
    (tmp_path / "gradients").mkdir()
    environment = {"GRADIENTS": str(tmp_path / "gradients")}
    logs = ended(start(TRAINS, distribution=TWO_RANKS, max_retry_attempts=1, environment=environment))
    assert "[rank 0] resumed from 17 in the memory of this host" in logs
    assert "[rank 1] resumed from 17 in the memory of this host" in logs
    assert "checkpoint 17, which was in the memory of this host, is committed in file:" in logs
    assert "[rank 0] the same weights: True" in logs


SHARDED = """
    import os, signal
    import numpy as np
    import torch
    import torch.distributed as dist
    from cloudtrain.checkpoint import Checkpointer, Shard

    dist.init_process_group("gloo")
    rank, whole, own = dist.get_rank(), np.zeros(10), np.zeros(50)

    def state():
        return {"whole": whole, "own": Shard(own, (100,), (50 * rank,))}

    checkpointer = Checkpointer(every=1000, memory_every=1, sharded=True, save_at_end=False)
    checkpoint = checkpointer.restore(into=state())
    first = checkpoint.step + 1 if checkpoint else 1
    print("starting at", first, "from", checkpoint.source if checkpoint else "scratch", flush=True)
    for step in range(first, 31):
        whole += step
        own += step * (rank + 1)
        checkpointer.maybe_save(step, state)
        dist.all_reduce(torch.zeros(1))
        if (step, first, rank) == (17, 1, 1):
            os.kill(os.getpid(), signal.SIGKILL)
    assert set(whole) == {465} and set(own) == {465 * (rank + 1)}, (whole, own)
    checkpointer.close()
"""


@pytest.mark.soak
def test_a_killed_rank_of_a_sharded_training(start: Run) -> None:
    logs = ended(start(SHARDED, distribution=TWO_RANKS, max_retry_attempts=1))
    starts = re.findall(r"starting at (\d+) from (.*)", logs)
    assert starts[:2] == [("1", "scratch")] * 2
    assert starts[2] == starts[3] and starts[2][1] == "the memory of this host", logs
    assert starts[2][0] in ("17", "18"), "the other rank may have lacked step 17"


def test_storage_that_is_away_from_then_on(start: Run) -> None:
    with S3Server() as server:
        server.create_bucket("data")
        environment = {**server.env, "SERVER": str(server.pid)}
        text = plain(uri="s3://data/run")
        job = start(text, max_retry_attempts=1, environment=environment, stop_grace=1)
        logs = ended(job)
    left = f"{folder(job).host('algo-1').base}/unsaved/1"
    assert f"Step 30 is on disk: copy what is in {left} to s3://data/run to resume from it" in logs
    assert Checkpointer(left).steps() == [30]
    assert "resumed from 17 in the memory of this host" in logs
    assert "checkpoint 17 stays in the memory of this host: s3://data/run does not answer" in logs


PENDING = """
    import os, signal, time
    import numpy as np
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer("s3://data/run", every=10, save_at_end=False)
    checkpoint = checkpointer.restore()
    if checkpoint:
        print("resumed from", checkpoint.step, "in", checkpoint.source, flush=True)
        os._exit(0)
    if environment.rank() == 0:
        while not os.path.exists(os.environ["RESTORED"]):
            time.sleep(0.1)
        os.kill(int(os.environ["SERVER"]), signal.SIGSTOP)
        checkpointer.maybe_save(10, {"weights": np.zeros(1000)})
        while not any(name.endswith(".json") for name in os.listdir(os.environ["CLOUDTRAIN_CHECKPOINT_MEMORY"])):
            time.sleep(0.1)
        open(os.environ["SAVED"], "w").close()
        time.sleep(600)
    open(os.environ["RESTORED"], "w").close()
    while not os.path.exists(os.environ["SAVED"]):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_commit_to_storage_that_hangs_delays_no_restart(start: Run, tmp_path: Path) -> None:
    with S3Server() as server:
        server.create_bucket("data")
        marks = {"SAVED": str(tmp_path / "saved"), "RESTORED": str(tmp_path / "restored")}
        environment = {**server.env, "SERVER": str(server.pid), **marks}
        job = start(
            PENDING, distribution=TWO_RANKS, max_retry_attempts=1, environment=environment, stop_grace=1
        )
        try:
            logs = ended(job)
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert "[rank 0] resumed from 10 in the memory of this host" in logs
    assert "[rank 1] resumed from 10 in the memory of this host" in logs
    assert "checkpoint 10 stays in the memory of this host: s3://data/run does not answer" in logs


FLIPS = """
            for path in glob.glob(os.environ["CLOUDTRAIN_CHECKPOINT_MEMORY"] + "/*.data"):
                with open(path, "r+b") as file:
                    file.seek(1000)
                    byte = file.read(1)
                    file.seek(1000)
                    file.write(bytes([byte[0] ^ 1]))
"""


def test_a_flipped_bit_in_every_copy(start: Run) -> None:
    logs = ended(start(plain(before=FLIPS), max_retry_attempts=1))
    assert "the copy of step 17 in the memory of this host is damaged: step-000000000017" in logs
    assert "resumed from 10 in file:" in logs


def test_memory_that_is_full(start: Run, tmp_path: Path) -> None:
    small = tmp_path / "shm"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k,mode=1777", "tmpfs", str(small)], check=True)
    try:
        environment = {VARIABLE: str(small)}
        logs = ended(start(plain(), max_retry_attempts=1, environment=environment))
        wait_until(lambda: not os.listdir(small), "the removal of the copies")
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert "checkpoints are not kept in memory: " in logs
    assert "resumed from 10 in file:" in logs


def test_the_last_failure_commits_what_is_in_memory(start: Run) -> None:
    job = wait_for_end(start(plain()))
    assert job.status == JobStatus.FAILED
    assert Checkpointer(folder(job).path / "checkpoints").steps() == [10, 17], job.logs()


CLEANS_UP = """
    import os, shutil
    import numpy as np
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    with Checkpointer(every=1) as checkpointer:
        checkpointer.maybe_save(1, {"weights": np.zeros(1000)})
    shutil.rmtree(environment.checkpoint_uri().partition("://")[2])
"""


def test_a_script_that_deletes_its_checkpoints_gets_none_back(start: Run) -> None:
    job = start(CLEANS_UP)
    ended(job)
    assert not list((folder(job).path / "checkpoints").glob("step-*"))


def test_the_supervisor_commits_what_a_killed_runtime_has_left(start: Run) -> None:
    """No attempt follows that could find it."""
    job = wait_for_end(start(plain(before="os.kill(os.getppid(), signal.SIGKILL)")))
    assert job.status == JobStatus.FAILED
    assert "checkpoint 17, which was in the memory of this host, is committed in file:" in job.logs()
    assert Checkpointer(folder(job).path / "checkpoints").steps() == [10, 17], job.logs()
