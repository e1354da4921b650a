"""Real training on the simulated SageMaker: two hosts of two ranks, every launcher, and spot instances."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simulated import SimulatedSageMaker

from cloudtrain.storage import open_store, upload_tree

pytestmark = pytest.mark.proof(
    "its containers",
    imitated="processes in the network namespaces of two instances, with the files and variables of SageMaker",
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_pytorch"

HOROVOD = """
import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), name="ranks", op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()} on {hvd.cross_rank()} sums to {int(total)}", flush=True)
"""

WHERE = """
import os
from cloudtrain import environment

print("group", os.environ["SM_CURRENT_INSTANCE_GROUP"], "rank", environment.rank(), "of", environment.world_size(),
      "master", os.environ["SM_MASTER_ADDR"], flush=True)
"""

ONE_RANK: dict[str, Any] = {"processes_per_host": 1}
TWO_RANKS: dict[str, Any] = {"processes_per_host": 2}


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's channel."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, str(EXAMPLE / "prepare.py"), folder.as_uri()], check=True)
    return folder


@pytest.fixture
def digits(sagemaker: SimulatedSageMaker, prepared: Path) -> str:
    """The URI of the example's channel."""
    uri = f"s3://{sagemaker.bucket}/digits"
    upload_tree(prepared, open_store(uri))
    return uri


@pytest.mark.soak  # in CI, torch averages on two hosts in the next test, and digits train in containers
@pytest.mark.parametrize(("kind", "ranks"), [("mpi", 2), ("mpi", 4), ("torch_distributed", 4)])
def test_digits_on_two_hosts(sagemaker: SimulatedSageMaker, digits: str, kind: str, ranks: int) -> None:
    estimator = sagemaker.estimator_of(
        EXAMPLE,
        instance_count=2,
        distribution={kind: {"processes_per_host": ranks // 2}},
        hyperparameters={"epochs": 2},
    )
    job = estimator.fit({"train": digits}, logs=False)
    log = job.logs()
    assert all(f"rank {rank} of {ranks} trains" in log for rank in range(ranks))
    assert float(re.findall(r"test:accuracy=([0-9.]+)", log)[-1]) > 0.5
    assert open_store(f"s3://{sagemaker.bucket}/out/{job.name}/output").stat("model.tar.gz")


def test_a_horovod_script_needs_no_horovod(sagemaker: SimulatedSageMaker) -> None:
    estimator = sagemaker.estimator(HOROVOD, instance_count=2, distribution={"horovod": ONE_RANK})
    log = estimator.fit(logs=False).logs()
    assert all(f"rank {rank} of 2 on {rank} sums to 3" in log for rank in range(2))


@pytest.mark.parametrize(
    "kind",
    ["mpi", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("torch_distributed", "processes"))],
)
def test_ranks_are_where_the_distribution_is(sagemaker: SimulatedSageMaker, kind: str) -> None:
    groups = [
        {"instance_group_name": name, "instance_type": kind, "instance_count": 1}
        for name, kind in (("data", "ml.c5.xlarge"), ("gpu", "ml.p4d.24xlarge"))
    ]
    estimator = sagemaker.estimator(
        WHERE,
        instance_type=None,
        instance_groups=groups,
        distribution={kind: TWO_RANKS, "instance_groups": ["gpu"]},
    )
    log = estimator.fit(logs=False).logs()
    said = sorted(re.findall(r"group \w+ rank \d of \d master [\w.-]+", log))
    assert said == [
        "group data rank 0 of 1 master algo-2",
        "group gpu rank 0 of 2 master algo-2",
        "group gpu rank 1 of 2 master algo-2",
    ]


RESUMES = """
import time

from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

checkpointer = Checkpointer()
checkpoint = checkpointer.restore()
first = checkpoint.step + 1 if checkpoint else 1
for epoch in range(first, 7):
    if epoch == 3 == first + 2:
        print("waits for a notice", flush=True)
        while not environment.preemption():
            time.sleep(0.05)
    checkpointer.save(epoch, {"epoch": epoch})
    if environment.rank() == 0:
        print(f"epoch {epoch}/6 of an attempt from epoch {first}", flush=True)
    environment.exit_if_preempted()
"""
INTERRUPTED = [
    *("Starting", "Downloading", "Training", "Interrupted"),
    *("Starting", "Downloading", "Training", "Uploading", "Completed"),
]


def test_a_job_resumes_when_spot_instances_return(sagemaker: SimulatedSageMaker) -> None:
    estimator = sagemaker.estimator(
        RESUMES,
        instance_count=2,
        distribution={"processes": ONE_RANK},
        checkpoint_s3_uri=f"s3://{sagemaker.bucket}/checkpoints",
        use_spot_instances=True,
        max_run=600,
        max_wait=1200,
    )
    job = estimator.fit(wait=False)
    sagemaker.wait_for_line(job, "[rank 0] waits for a notice")
    sagemaker.wait_for_line(job, "[rank 1] waits for a notice")
    sagemaker.instances.interrupt.set()
    job.wait()
    assert sagemaker.states(job.name) == INTERRUPTED
    done = re.findall(r"epoch (\d)/6 of an attempt from epoch (\d)", job.logs())
    assert done == [*((str(epoch), "1") for epoch in (1, 2, 3)), *((str(epoch), "4") for epoch in (4, 5, 6))]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["processes", "torch_distributed"])
def test_training_resumes_when_spot_instances_return(
    sagemaker: SimulatedSageMaker, digits: str, kind: str
) -> None:
    """In CI, a script without data or torch does: `test_a_job_resumes_when_spot_instances_return`."""
    estimator = sagemaker.estimator_of(
        EXAMPLE,
        instance_count=2,
        distribution={kind: ONE_RANK},
        hyperparameters={"epochs": 6, "epoch-seconds": 0.5},
        checkpoint_s3_uri=f"s3://{sagemaker.bucket}/checkpoints",
        use_spot_instances=True,
        max_run=600,
        max_wait=1200,
    )
    job = estimator.fit({"train": digits}, wait=False)
    sagemaker.wait_for_line(job, "epoch 2/6")
    sagemaker.instances.interrupt.set()
    job.wait()
    assert sagemaker.states(job.name) == INTERRUPTED
    log = job.logs()
    done = re.findall(r"epoch (\d)/6", log)
    resumed = re.search(r"resumed after epoch (\d)", log)
    assert resumed
    assert done == [str(epoch) for epoch in range(1, 7)]


SHARDED = """
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(16, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
model(torch.ones(1, 16)).sum().backward()
optimizer.step()
model_state, optimizer_state = get_state_dict(model, optimizer)
checkpointer = Checkpointer(sharded=True)
found = checkpointer.restore(into={"model": model_state, "optimizer": optimizer_state})
if found:
    set_state_dict(model, optimizer, model_state_dict=found.state["model"], optim_state_dict=found.state["optimizer"])
first = found.step + 1 if found else 1
if found and dist.get_rank() == 0:
    print(f"resumed after step {found.step}", flush=True)
for step in range(first, 13):
    optimizer.zero_grad()
    model(torch.ones(1, 16)).square().sum().backward()
    optimizer.step()
    time.sleep(0.3)
    checkpointer.save(step, dict(zip(("model", "optimizer"), get_state_dict(model, optimizer))))
    if dist.get_rank() == 0:
        print(f"step {step}", flush=True)
    environment.exit_if_preempted()
checkpointer.close()
dist.destroy_process_group()
"""


@pytest.mark.soak
def test_shards_of_all_hosts_are_restored_on_all_hosts(sagemaker: SimulatedSageMaker) -> None:
    """SageMaker syncs one folder of checkpoints per host; together, they hold one checkpoint."""
    estimator = sagemaker.estimator(
        SHARDED,
        instance_count=2,
        distribution={"torch_distributed": ONE_RANK},
        checkpoint_s3_uri=f"s3://{sagemaker.bucket}/checkpoints",
        use_spot_instances=True,
        max_run=600,
        max_wait=1200,
    )
    job = estimator.fit(wait=False)
    sagemaker.wait_for_line(job, "step 3")
    sagemaker.instances.interrupt.set()
    job.wait()
    log = job.logs()
    resumed = re.search(r"resumed after step (\d+)", log)
    assert resumed
    assert int(resumed[1]) >= 2
    assert "step 12" in log
