"""The environment of ranks on two hosts, and the outcome of a successful job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hosts_job import LAUNCHES, HostsJob, Launch, StartJob
from linked_hosts import linked

from cloudtrain.contract.frameworks import FRAMEWORK_VARIABLES

PRINTS_ENVIRONMENT = (
    f"FRAMEWORKS = {FRAMEWORK_VARIABLES}\n"
    + """
import json, os, socket, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "SM_CURRENT_HOST", "MASTER_ADDR")
shown = {name: os.environ[name] for name in names}
shown.update(others={name: os.environ.get(name) for name in FRAMEWORKS})
shown.update(hostfile=open(os.environ["CLOUDTRAIN_HOSTFILE"]).read())
shown.update(hostname=socket.gethostname(), arguments=sys.argv[1:], port=os.environ["MASTER_PORT"])
with open(f"{os.environ['SM_OUTPUT_DATA_DIR']}/rank-{shown['RANK']}.json", "w") as file:
    json.dump(shown, file)
"""
)
AWKWARD = """it's "quoted" $(id) `x` \\ ;|&
ü"""

LINE = ["fit", "--rdzv", "--n", "", AWKWARD, "a\r\nb\r", "--", "-x", os.fsdecode(b"\xe9"), ""]
"""torchrun would refuse ``--rdzv``, which could be ``--rdzv-id`` or ``--rdzv-conf``."""


ONE_RANK = Launch({"sagemaker_processes_enabled": True, "sagemaker_processes_per_host": 1})
# test_hosts_may_have_ipv6_only connects processes in CI
OTHERS_IN_CI = [pytest.param(name, marks=[pytest.mark.soak] * (name == "processes")) for name in LAUNCHES]


@pytest.mark.parametrize("launch", [*LAUNCHES, "agent"], indirect=True)
def test_all_ranks_start_and_the_job_succeeds(start_job: StartJob, launch: Launch) -> None:
    job = start_job(
        PRINTS_ENVIRONMENT,
        launch,
        hyperparameters={"note": AWKWARD, "version": "1.10", "epochs": 3},
        arguments=LINE,
        of={"n1": {"DMLC_TASK_ID": "mine"}},
    )
    assert job.wait() == [0, 0], job.output()
    print(f"\na trivial job on two hosts: {job.seconds:.1f} s")
    ranks = []
    for part in job.parts:
        assert part.paths.success.exists()
        assert not part.paths.failure.exists()
        ranks += [json.loads(path.read_text()) for path in sorted(part.paths.output_data.iterdir())]
    coordinator, tracker = (
        ranks[0]["others"][name] for name in ("JAX_COORDINATOR_ADDRESS", "DMLC_TRACKER_PORT")
    )
    assert coordinator.startswith("n1:")
    assert len({ranks[0]["port"], coordinator[3:], tracker}) == 3
    assert ranks == [
        {
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "LOCAL_RANK": str(rank % 2),
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(rank // 2),
            "SM_CURRENT_HOST": f"n{rank // 2 + 1}",
            "MASTER_ADDR": "n1",
            "hostname": f"n{rank // 2 + 1}",
            "arguments": ["--epochs", "3", "--note", AWKWARD, "--version", "1.10", *LINE],
            "port": ranks[0]["port"],
            "hostfile": "n1 slots=2\nn2 slots=2\n",
            "others": {
                "NODE_RANK": str(rank // 2),
                "JAX_COORDINATOR_ADDRESS": coordinator,
                "JAX_COORDINATOR_BIND_ADDRESS": None,
                "JAX_NUM_PROCESSES": "4",
                "JAX_PROCESS_ID": str(rank),
                "JAX_LOCAL_DEVICE_IDS": None,
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
                "KERAS_DISTRIBUTION_NUM_PROCESSES": "4",
                "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
                "DMLC_TRACKER_URI": "n1",
                "DMLC_TRACKER_PORT": tracker,
                "DMLC_TASK_ID": "mine" if rank < 2 else str(rank),  # the user's own
                "DMLC_NUM_WORKER": "4",
            },
        }
        for rank in range(4)
    ]


def test_hosts_may_have_ipv6_only(tmp_path: Path) -> None:
    script = """
    import torch
    import cloudtrain.distributed.torch as hvd
    hvd.init()
    print("the sum is", int(hvd.allreduce(torch.ones(1), op=hvd.Sum)), hvd.broadcast_object("from rank 0"), flush=True)
    """
    with linked(2, tmp_path, subnet="fd00:77::{}/64") as machines:
        job = HostsJob(machines, tmp_path, script, ONE_RANK)
        try:
            assert job.wait() == [0, 0], job.output()
        finally:
            job.kill()
    assert job.output().count("the sum is 2 from rank 0") == 2


@pytest.mark.parametrize("launch", OTHERS_IN_CI, indirect=True)
def test_ranks_reach_each_other_over_the_network(start_job: StartJob, launch: Launch) -> None:
    job = start_job(
        """
        import os

        if os.environ["LOCAL_RANK"] != "0":
            raise SystemExit  # one rank of each host is enough: each imports torch

        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", rank=int(os.environ["GROUP_RANK"]), world_size=2)
        tensor = torch.tensor([10 ** dist.get_rank()])
        dist.all_reduce(tensor)
        print("sum", tensor.item(), flush=True)
        dist.destroy_process_group()
        """,
        launch,
    )
    assert job.wait(120) == [0, 0], job.output()
    assert job.output().count("sum 11\n") == 2


def test_mpi_reaches_the_other_host(start_job: StartJob, mpirun: Launch) -> None:
    """Over the job's interface: ``docker0`` has the same address on both hosts, but does not connect them."""
    job = start_job(
        """
        import os
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        assert (world.rank, world.size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        print("sum", world.allreduce(10**world.rank), len(world.bcast(bytes(1 << 20))), flush=True)
        """,
        mpirun,
    )
    assert job.wait(60) == [0, 0], job.output()
    assert job.output().count("sum 1111 1048576\n") == 4


@pytest.mark.parametrize("launch", [*LAUNCHES, pytest.param("agent", marks=pytest.mark.soak)], indirect=True)
def test_sigterm_to_one_host_stops_both_with_grace(start_job: StartJob, launch: Launch) -> None:
    job = start_job(
        """
        import os, signal, sys, time

        def stop(number, frame):
            time.sleep(1)  # longer than mpirun and torchrun wait by default
            print("saved", flush=True)
            sys.exit(0)

        signal.signal(signal.SIGTERM, stop)
        print("started", flush=True)
        time.sleep(100)
        """,
        launch,
    )
    job.wait_for("started", 4)
    job.part("n2").program.terminate()
    assert job.wait() == [143, 143], job.output()
    assert job.output().count("saved") == 4
    for part in job.parts:
        assert not part.paths.success.exists()
        assert not part.paths.failure.exists()


def test_hosts_with_different_gpus_are_refused_before_ranks_start(start_job: StartJob) -> None:
    launch = Launch({"sagemaker_torch_distributed_enabled": True})
    gpus = {"n1": {"CUDA_VISIBLE_DEVICES": "0,1"}, "n2": {"CUDA_VISIBLE_DEVICES": "0"}}
    job = start_job("print('started')", launch, of=gpus)
    assert 0 not in job.wait()
    assert "started" not in job.output()
    for part in job.parts:
        assert part.failure().message == "the hosts have different numbers of GPUs: 2 on n1; 1 on n2"
