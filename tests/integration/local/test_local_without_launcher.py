"""Jobs without ``distribution``: a script runs as under plain ``python``, and may start ranks itself."""

from __future__ import annotations

import json

import pytest
from local_jobs import Run

NAMES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK"

LIKE_NANOGPT = f"""
    import os
    from cloudtrain import environment

    if int(os.environ.get("RANK", -1)) != -1:
        raise SystemExit("takes the path for several ranks")
    print("set:", [name for name in "{NAMES}".split() if name in os.environ])
    print("rank", environment.rank(), "of", environment.world_size(), flush=True)
"""

LIKE_LIGHTNING = """
    import os, socket, subprocess, sys
    from cloudtrain import environment
    from cloudtrain.checkpoint import Checkpointer

    started_by_parent = "LOCAL_RANK" in os.environ  # Lightning's LightningEnvironment.creates_processes_externally

    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece: both ranks share the pipe

    say("rank", environment.rank(), "begins")
    if not started_by_parent:
        with socket.create_server(("127.0.0.1", 0)) as server:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(server.getsockname()[1]))
        os.environ.update(NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
        child = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "LOCAL_RANK": "1"})

    if "by hvd" not in sys.argv:
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=2)
    import torch
    import cloudtrain.distributed.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
    saves = Checkpointer(environment.output_data_dir() / "checkpoints").save(1, {"total": total})
    hvd.barrier()
    world = environment.rank(), environment.world_size()
    say("world", *world, hvd.local_rank(), hvd.local_size(), "total", total, "saves", bool(saves))
    if not started_by_parent:
        sys.exit(child.wait())
"""

ON_TWO_HOSTS = f"""
    import json, os
    from cloudtrain import environment
    from cloudtrain.distributed import World

    hosts, own = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
    set_here = [name for name in "{NAMES} JAX_PROCESS_ID TF_CONFIG".split() if name in os.environ]
    master = [os.environ.get(name) == os.environ["SM_" + name] for name in ("MASTER_ADDR", "MASTER_PORT")]
    world = World.from_environ()
    print(json.dumps([hosts.index(own), set_here, master, world.rank, world.size, environment.rank()]), flush=True)
"""


def test_a_script_that_branches_on_rank_is_an_ordinary_process(run: Run) -> None:
    job = run(LIKE_NANOGPT)
    assert job.failure is None
    assert job.logs() == "[rank 0] set: []\n[rank 0] rank 0 of 1\n"


@pytest.mark.parametrize("how", ["by torch", "by hvd"])
def test_a_script_may_start_ranks_itself(run: Run, how: str) -> None:
    """As PyTorch Lightning does it: ``RANK`` is never set. The ranks then use cloudtrain."""
    job = run(LIKE_LIGHTNING, hyperparameters={"connected": how})
    assert job.failure is None, job.logs()
    lines = [line.partition("] ")[2] for line in job.logs().splitlines() if line.startswith("[rank 0] ")]
    assert sorted(line for line in lines if line.endswith("begins")) == ["rank 0 begins", "rank 1 begins"]
    assert sorted(line for line in lines if line.startswith("world")) == [
        "world 0 2 0 2 total 3.0 saves True",
        "world 1 2 1 2 total 3.0 saves False",
    ]


def test_hosts_find_each_other_by_the_contract_alone(run: Run) -> None:
    """Our own library still sees one world, and AWS's images for PyTorch set the address of the first host."""
    job = run(ON_TWO_HOSTS, instance_count=2)
    assert job.failure is None, job.logs()
    found = sorted(json.loads(line.partition("] ")[2]) for line in job.logs().splitlines())
    assert found == [
        [rank, ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "JAX_PROCESS_ID"], [True, True], rank, 2, rank]
        for rank in range(2)
    ]
