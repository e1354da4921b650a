"""A node of a job on Slurm is lost with its memory: the training continues from its last copy on another node."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import submit, wait_for_end, wait_for_line, wait_until

from cloudtrain import JobStatus
from cloudtrain.runtime.checkpoint_copies import held_folders, newest_in

SCRIPT = """
import os, time
import numpy as np
from cloudtrain.checkpoint import Checkpointer

print("runs", os.environ["RANK"], os.getppid(), os.environ["CLOUDTRAIN_CHECKPOINT_MEMORY"], flush=True)
checkpointer = Checkpointer({uri!r}, every=100000, memory_every=1, save_at_end=False)
checkpoint = checkpointer.restore(alone=True)
first, weights = 1, np.zeros(1000)
if checkpoint:
    first, weights = checkpoint.step + 1, checkpoint.state["weights"]
    print("rank", os.environ["RANK"], "resumed from", checkpoint.step, "in", checkpoint.source, flush=True)
last = 10000 if first == 1 else first + 10
for step in range(first, last + 1):
    weights += step
    time.sleep(0.05)
    checkpointer.maybe_save(step, {{"weights": weights}})
assert set(weights) == {{last * (last + 1) / 2}} or os.environ["RANK"] == "1"
"""


@pytest.mark.soak  # the parts are in tests/integration/hosts
@pytest.mark.parametrize("fields", [{"spare_hosts": 1}, {"max_retry_attempts": 1}], ids=["spare", "retry"])
def test_a_lost_node_resumes_from_its_copy(
    slurm3: SlurmCluster, tmp_path: Path, fields: dict[str, int]
) -> None:
    job = submit(
        tmp_path,
        SCRIPT.format(uri=str(tmp_path / "run")),
        f"copied-{len(next(iter(fields)))}",
        host_timeout=5,
        **fields,
    )
    wait_for_line(job, "runs", 2)
    ranks = {
        rank: (int(pid), Path(folder))
        for rank, pid, folder in re.findall(r"runs (\d) (\d+) (\S+)", job.logs())
    }

    def held() -> int:
        try:
            folders = held_folders(ranks["1"][1])
            return max(header.step for one in folders.values() for _, header in newest_in(one).values())
        except (OSError, ValueError):
            return -1

    wait_until(lambda: held() > 5, "a copy on the other node", 120, job.logs)
    copied = held()
    runtime, memory = ranks["0"]
    os.kill(runtime, signal.SIGKILL)
    shutil.rmtree(memory)
    described = wait_for_end(job, 180).describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    [(step, source)] = re.findall(r"rank 0 resumed from (\d+) in (.*)", job.logs())
    assert int(step) >= copied
    if "spare_hosts" in fields:  # a copy has the name of its host: the other node has committed it instead
        assert source == (tmp_path / "run").as_uri()
        assert (
            f"checkpoint {step}, which was in the memory of this host, for 127.0.0.2, is committed"
            in job.logs()
        )
    else:
        assert source == "the memory of this host"
