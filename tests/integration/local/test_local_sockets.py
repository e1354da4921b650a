"""The processes of a job on one machine listen where other machines cannot reach them, and a kill leaves no files.

Each launcher runs one job. While its ranks wait, the test looks at every listening socket, and then kills everything.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_jobs import Run, folder, live_processes, wait_until, write

from cloudtrain import Job
from cloudtrain.runtime.ports import KEY_FILE

WITH_TORCH = """
    import os, time
    import numpy, torch
    import cloudtrain.distributed.torch as hvd
    hvd.init()
    assert hvd.size() == SIZE, hvd.size()
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    hvd.add_process_set([0])
    loader = torch.utils.data.DataLoader(torch.arange(1000), batch_size=10, num_workers=1)
    for batch in loader:
        hvd.allreduce(batch)
        if batch[0] == 100:
            print("waiting", flush=True)
            time.sleep(120)
"""
WITH_MPI = """
    import time
    import numpy
    import cloudtrain.distributed.numpy as hvd
    from mpi4py import MPI
    hvd.init(backend="mpi")
    assert hvd.size() == SIZE, hvd.size()
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    hvd.allreduce(numpy.ones(1 << 20))
    window = MPI.Win.Allocate_shared(4096, 1, comm=MPI.COMM_WORLD)
    print("waiting", flush=True)
    time.sleep(120)
"""
pytestmark = pytest.mark.usefixtures("shared_environments")

MPIRUN = {"4": "/usr/bin/mpirun", "5": str(Path(sys.executable).with_name("mpirun"))}
TWO = {"processes_per_host": 2}

LAUNCHES = {
    "processes": (WITH_TORCH, {"processes": TWO}, 1),
    "processes on two hosts": (WITH_TORCH, {"processes": TWO}, 2),
    "torchrun": (WITH_TORCH, {"torch_distributed": {"enabled": True, **TWO}}, 1),
    "torchrun on two hosts": (WITH_TORCH, {"torch_distributed": {"enabled": True, **TWO}}, 2),
    "mpirun 4": (WITH_MPI, {"mpi": TWO}, 1),
    "mpirun 5": (WITH_MPI, {"mpi": TWO}, 1),
}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """TMPDIR of the job. Its path is short: DataLoader workers listen below it, and socket paths have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="test-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


IN_CI = ("torchrun", "mpirun 4", "mpirun 5")
"""The ranks of the other launches listen as those of torchrun do, and they have no agent."""


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.soak]) for name in LAUNCHES]
)
def waiting(
    request: pytest.FixtureRequest,
    run: Run,
    temporary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Job]:
    """A job whose ranks have exchanged something, and wait. Its temporary files are in ``temporary``."""
    script, distribution, hosts = LAUNCHES[request.param]
    path = os.environ["PATH"]
    if request.param.startswith("mpirun"):
        mpirun = MPIRUN[request.param[-1]]
        if not os.path.exists(mpirun):
            assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"there is no {mpirun}"
            pytest.skip(f"there is no {mpirun}")
        path = f"{os.path.dirname(mpirun)}{os.pathsep}{path}"
    monkeypatch.setenv("TMPDIR", str(temporary))
    source = write(tmp_path / "source", "train.py", script.replace("SIZE", str(2 * hosts)))
    write(source, "requirements.txt", "click\n")  # an environment whose folder has no mpirun
    job = run(source, wait=False, distribution=distribution, instance_count=hosts, environment={"PATH": path})
    wait_until(lambda: job.logs().count("waiting") == 2 * hosts or job.status.is_final, "the ranks", 180)
    assert not job.status.is_final, job.logs()
    yield job
    kill(job)


def processes(job: Job) -> list[int]:
    needle = str(folder(job).path).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def kill(job: Job) -> None:
    """Kill every process of the job, with the supervisor first, so that none is left to clean up."""
    for process in sorted(processes(job)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: not live_processes(job), "the end of all processes")


def listening(pids: list[int]) -> list[str]:
    """Address, port and program of every TCP socket with which one of the processes listens."""
    shown = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in shown.splitlines():
        if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & set(pids):
            found.append(" ".join(line.split()[3:]))
    return found


def open_files(pids: list[int], *folders: str) -> set[str]:
    """The files below the folders that the processes have open or mapped."""
    found = set()
    for pid in pids:
        try:
            names = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            names += [
                line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
            ]
        except OSError:
            continue
        found |= {name for name in names if name.startswith(folders)}
    return {name for name in found if not name.endswith(" (deleted)")}


def test_only_this_machine_is_listened_to_and_a_kill_leaves_nothing(waiting: Job, temporary: Path) -> None:
    if shutil.which("ss") is None:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no ss (iproute2)"
        pytest.skip("there is no ss")
    pids = processes(waiting)
    assert len(pids) > 3
    open_to_others = [
        line for line in listening(pids) if not re.match(r"127\.|\[::1\]|\[::ffff:127\.|\S*%lo:", line)
    ]
    assert open_to_others == []
    files = open_files(pids, "/dev/shm/", f"{temporary}/")
    kill(waiting)
    assert [name for name in files if os.path.exists(name)] == []
    # Python's folders for the worker processes of the script, and the user's folder with the key of ports
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(("pymp-", "cloudtrain-"))]
    assert left == []
    assert [path.name for path in temporary.glob("cloudtrain-*/*")] == [KEY_FILE]
