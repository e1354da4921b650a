"""A training on two hosts from `fit` to the garbage collector, while the API server has every fault it can have."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_training import estimator

from cloudtrain.contract import JobStatus
from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

AVERAGES = """
import os, time
import numpy as np
import cloudtrain.distributed.numpy as hvd
from cloudtrain.storage import open_store

hvd.init(backend="mpi")
gradient = np.full(1000, float(hvd.rank()))
print("average", hvd.allreduce(gradient)[0], "of", hvd.size(), flush=True)
store = open_store(os.environ["SIGNALS"])
while not store.stat("go"):
    time.sleep(0.2)
for line in range(20):
    print("line", line, flush=True)
hvd.barrier()
if hvd.rank() == 0:
    np.save(os.path.join(os.environ["SM_MODEL_DIR"], "weights.npy"), gradient)
"""

TORCH = """
import os
import torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
model(torch.full((1, 4), float(torch.distributed.get_rank()))).sum().backward()
print("average", model.module.weight.grad.tolist(), flush=True)
torch.distributed.destroy_process_group()
"""


def _break_everything(kubernetes: Namespace) -> None:
    """Each fault of the API server, while a client watches the job."""
    proxy = kubernetes.proxy
    mine = f"GET .*/{kubernetes.name}/"
    proxy.cut_watches()
    proxy.faults.refuse(mine, 429, 2, retry_after=1)
    proxy.faults.refuse(mine, 503)
    proxy.faults.refuse(mine + ".*watch", 410)
    proxy.faults.lose_answer(mine, 2)
    proxy.expire_watches()
    kubernetes.server.stop_apiserver()
    kubernetes.server.start_apiserver()
    kubernetes.server.wait()
    proxy.cut_watches()


def test_ranks_average_over_mpirun_while_the_api_server_fails(
    kubernetes: Namespace, s3: str, s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.give_storage(s3_server)
    signals = open_store(f"s3://{s3}/signals")

    def meanwhile() -> None:
        kubernetes.wait_for_line("average-0", "average")
        _break_everything(kubernetes)
        kubernetes.wait_until(lambda: kubernetes.proxy.faults.left == 0, "the last fault")
        signals.write("go", b"")

    faults = threading.Thread(target=meanwhile)
    faults.start()
    job = estimator(
        tmp_path,
        AVERAGES,
        output_path=f"s3://{s3}/out",
        environment={"SIGNALS": f"s3://{s3}/signals"},
        distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
        options={"ttl": 3600},
    ).fit(job_name="average")
    faults.join()
    description = job.describe()
    assert description.status == JobStatus.COMPLETED
    assert kubernetes.proxy.faults.left == 0
    assert job.model_data
    assert open_store(job.model_data).uri.startswith(f"s3://{s3}/out/average")
    assert set(description.phases) >= {"train", "upload"}
    printed = capsys.readouterr().out
    lines = Counter(re.findall(r"\[rank \d\] .*", printed))
    expected = {f"[rank {rank}] average 1.5 of 4" for rank in range(4)}
    expected |= {f"[rank {rank}] line {number}" for rank in range(4) for number in range(20)}
    assert dict(lines) == dict.fromkeys(expected, 1)

    main = kubernetes.bench.get("jobs", kubernetes.name, "average")
    assert main["spec"]["ttlSecondsAfterFinished"] == 3600
    assert "configmaps/average" in kubernetes.leftovers
    kubernetes.bench.patch("jobs", kubernetes.name, "average", {"spec": {"ttlSecondsAfterFinished": 0}})
    kubernetes.wait_until(lambda: kubernetes.leftovers == [], "the garbage collector")


@pytest.mark.soak
def test_lost_answers_make_no_second_object(kubernetes: Namespace, tmp_path: Path) -> None:
    """Each object is made once, though the client hears of none the first time."""
    kinds = ("jobs", "services", "configmaps", "secrets", "networkpolicies")
    for kind in kinds:
        kubernetes.proxy.faults.lose_answer(f"POST .*/{kubernetes.name}/{kind}")
    kubernetes.proxy.faults.refuse(f"POST .*/{kubernetes.name}/configmaps", 429, retry_after=1)
    options = {"discard_outputs": True}
    job = estimator(tmp_path, "print('hello')", output_path=None, options=options).fit(
        job_name="once", wait=False
    )
    assert kubernetes.proxy.faults.left == 0
    made = [name for name in kubernetes.leftovers if not name.startswith("pods/")]
    assert sorted(name for name in made if name.partition("/")[2].startswith("once")) == [
        "configmaps/once",
        "configmaps/once-runtime",
        "jobs/once",
        "networkpolicies/once",
        "secrets/once",
        "services/once",
    ]
    assert job.wait(timeout=60).status == JobStatus.COMPLETED
    subprocess.run(["kubectl", "delete", "job", "once", "--wait=false"], check=True, capture_output=True)
    kubernetes.wait_until(lambda: kubernetes.leftovers == [], "the garbage collector")


@pytest.mark.soak
def test_ranks_average_over_torchrun(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    distribution = {"torch_distributed": {"enabled": True, "processes_per_host": 1}}
    job = estimator(tmp_path, TORCH, distribution=distribution).fit(job_name="torch")
    assert job.status == JobStatus.COMPLETED
    for host in ("torch-0", "torch-1"):
        assert "average [[0.5, 0.5, 0.5, 0.5]]" in kubernetes.log(host)
