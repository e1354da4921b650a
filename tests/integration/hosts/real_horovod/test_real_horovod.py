"""The real Horovod, launched by the ``horovod`` distribution, on one host and on two."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hosts_job import LAUNCHES, HostsJob, Launch, StartJob

from cloudtrain.contract import FailureClass

ADDS_UP = """
import glob, json, os
import torch
import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.tensor([10.0 ** hvd.rank()]), op=hvd.Sum, name="total")
place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
real = bool(glob.glob(f"{os.path.dirname(hvd.__file__)}/mpi_lib*.so"))
with open(f"{os.environ['SM_OUTPUT_DATA_DIR']}/rank-{hvd.rank()}.json", "w") as file:
    json.dump({"total": total.item(), "place": place, "real": real}, file)
hvd.shutdown()
"""


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("implementation", ["horovod", "auto"])
def test_allreduce(
    start_job: StartJob, horovod: Callable[[str], Launch], hosts: int, implementation: str
) -> None:
    job = start_job(ADDS_UP, horovod(implementation), hosts=hosts)
    check_sums(job)


def test_allreduce_by_mpi(start_job: StartJob, horovod: Callable[[str], Launch]) -> None:
    """Without the ``horovod`` distribution: ``mpi``, and Horovod's own MPI operations."""
    launch = replace(horovod("horovod"), values=LAUNCHES["mpirun-4"].values)
    job = start_job(ADDS_UP, launch)
    check_sums(job)


def check_sums(job: HostsJob) -> None:
    hosts = len(job.parts)
    assert job.wait(120) == [0] * hosts, job.output()
    files = [path for part in job.parts for path in sorted(part.paths.output_data.iterdir())]
    assert [json.loads(path.read_text()) for path in files] == [
        {
            "total": sum(10.0**other for other in range(2 * hosts)),
            "place": [rank, 2 * hosts, rank % 2, 2, rank // 2, hosts],
            "real": True,
        }
        for rank in range(2 * hosts)
    ]


@pytest.mark.parametrize(
    ("ending", "code", "failure_class"),
    [("os._exit(5)", 5, FailureClass.USER_ERROR), ("os.kill(os.getpid(), 9)", 137, FailureClass.KILLED)],
    ids=["exit-5", "kill-9"],
)
def test_a_rank_ends_during_training(
    start_job: StartJob, horovod: Callable[[str], Launch], ending: str, code: int, failure_class: FailureClass
) -> None:
    """The others wait in an allreduce, or raise when connections are closed. Neither is the cause."""
    script = f"""
        import os, time
        import torch
        import horovod.torch as hvd

        hvd.init()
        for step in range(100):
            if step == 3 and hvd.rank() == 3:
                {ending}
            hvd.allreduce(torch.ones(1000), name="x")
    """
    job = start_job(script, horovod("horovod"))
    assert job.wait(120) == [code] * 2, job.output()
    for part in job.parts:
        report = part.failure()
        assert (report.rank, report.host, report.failure_class) == (3, "n2", failure_class)
        assert not part.paths.success.exists()


def test_sigterm(start_job: StartJob, horovod: Callable[[str], Launch]) -> None:
    job = start_job(
        "import horovod.torch as hvd, time; hvd.init(); print('started', flush=True); time.sleep(100)",
        horovod("horovod"),
        hosts=1,
    )
    job.wait_for("started", 2)
    job.part("n1").program.terminate()
    assert job.wait(60) == [143], job.output()
