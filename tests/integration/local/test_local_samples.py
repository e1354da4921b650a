"""Samples of hosts reach the description of a job, with a library in place of NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, folder

from cloudtrain._display.view import look_at
from cloudtrain.contract import FailureClass
from cloudtrain.observe import read_events
from tests.nvml import ORDERS, compile_stand_in

SCRIPT = """
import os, time
from cloudtrain.observe import loading_data

kept = bytearray(b"x") * (30 << 20)
rank = int(os.environ["RANK"])

class Slow:
    def __len__(self):
        return 8

    def __getitem__(self, place):
        time.sleep(0.25)
        return place

if rank == 2:
    from torch.utils.data import DataLoader

    list(DataLoader(Slow(), num_workers=2))  # in children, which do not count themselves
elif rank:
    with loading_data():
        time.sleep(2)
time.sleep(2 if rank else 4)
"""
"""Rank 0 waits for no data, the others wait for half of their time."""


def test_all_hosts_are_sampled_with_their_gpus(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / "orders"
    orders.write_text("mig")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(compile_stand_in(tmp_path).parent))
    monkeypatch.setenv(ORDERS, str(orders))
    job = run(
        SCRIPT,
        distribution=TWO_RANKS,
        instance_count=2,
    )
    view = look_at(job.platform, job.name)
    ranks = {
        host: sorted({rank for sample in samples for rank in sample.ranks})
        for host, samples in view.samples.items()
    }
    assert ranks == {"algo-1": [0, 1], "algo-2": [2, 3]}
    for host, samples in view.samples.items():
        assert samples[-1] == view.description.samples[host]
        assert samples[-1].memory and samples[-1].cpu is not None and samples[-1].cpus
        for rank in ranks[host]:  # the first sample may be from its start
            assert max(sample.ranks.get(rank, 0) for sample in samples) > 30 << 20
        shares = [(rank, share) for sample in samples for rank, share in sample.data.items() if share]
        assert {rank for rank, _ in shares} == {"algo-1": {1}, "algo-2": {2, 3}}[host]
        assert all(0 < share <= 1 for _, share in shares)
        assert [gpu.use for gpu in samples[-1].gpus] == [90, None, None]
        assert [gpu.memory for gpu in samples[-1].gpus] == [70 << 30, 5 << 30, 5 << 30]


def test_a_fault_of_a_gpu_explains_the_end_of_a_rank(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / "orders"
    orders.write_text("xid=48")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(compile_stand_in(tmp_path).parent))
    monkeypatch.setenv(ORDERS, str(orders))
    job = run("import time\ntime.sleep(2)\nraise RuntimeError('CUDA error: unknown error')")
    report = job.describe().failure
    assert report and report.failure_class == FailureClass.GPU_FAULT
    assert report.message == "NVRM: Xid (GPU-11111111): 48, an uncorrectable error of its memory"
    assert (
        "Xid 48 of GPU-11111111: an uncorrectable error of its memory. Run the job on another" in report.hint
    )
    assert "Drain the node and reset the GPU (nvidia-smi --gpu-reset)" in report.hint


def test_sampling_can_be_turned_off(run: Run) -> None:
    job = run("import time\ntime.sleep(3)", samples=False)
    assert job.describe().samples == {}
    assert "sample" not in {event["event"] for event in read_events(folder(job).path / "events.jsonl")}
