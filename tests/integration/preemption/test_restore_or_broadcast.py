"""Two ranks start with the state that rank 0 restores, and all ranks raise if it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from waiting import wait_for_end

from cloudtrain import Job, JobStatus
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.torch import capture

Submit = Callable[..., Job]

RESTORES = """
    import argparse
    import torch
    from torch import nn

    import cloudtrain.distributed.torch as hvd
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.checkpoint.torch import restore_or_broadcast
    from cloudtrain.errors import CheckpointError

    parser = argparse.ArgumentParser()
    parser.add_argument("--place")
    place = parser.parse_args().place

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    try:
        step = restore_or_broadcast(Checkpointer(place), model=model, optimizer=optimizer)
    except CheckpointError as error:
        print("error:", error.message, flush=True)
    else:
        everything = [*model.state_dict().values(), optimizer.state_dict()]
        same = {str(seen) for seen in hvd.allgather_object(everything)}
        drawn = hvd.allgather_object(torch.rand(1).item())
        print("step", step, "same", len(same) == 1, "sum", round(sum(p.sum().item() for p in model.parameters())),
              "drawn", len(set(drawn)), flush=True)
    hvd.shutdown()
"""

TWO_RANKS = {"processes": {"processes_per_host": 2}}


def save(place: Path, *, width: int = 2) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width))
    torch.nn.init.constant_(model[0].weight, 25.0)
    torch.nn.init.constant_(model[0].bias, 0.0)
    optimizer = torch.optim.Adam(model.parameters())
    with Checkpointer(place) as checkpointer:
        checkpointer.save(7, capture(model=model, optimizer=optimizer))


def of_both_ranks(job: Job) -> list[str]:
    logs = wait_for_end(job)
    assert job.status == JobStatus.COMPLETED, logs
    return sorted(line for line in logs.splitlines() if line.startswith("[rank"))


def test_from_a_checkpoint(submit: Submit, tmp_path: Path) -> None:
    save(tmp_path / "place")
    job = submit(RESTORES, hyperparameters={"place": str(tmp_path / "place")}, distribution=TWO_RANKS)
    expected = "step 7 same True sum 102 drawn 2"
    assert of_both_ranks(job) == [f"[rank 0] {expected}", f"[rank 1] {expected}"]


def test_without_one_all_begin_as_rank_0(submit: Submit, tmp_path: Path) -> None:
    job = submit(RESTORES, hyperparameters={"place": str(tmp_path / "place")}, distribution=TWO_RANKS)
    first, second = of_both_ranks(job)
    assert first.startswith("[rank 0] step None same True")
    assert first.partition("] ")[2] == second.partition("] ")[2]


@pytest.mark.parametrize("damage", ["another model", "bytes"])
def test_all_ranks_raise_the_reason(submit: Submit, tmp_path: Path, damage: str) -> None:
    save(tmp_path / "place", width=3 if damage == "another model" else 2)
    if damage == "bytes":
        [tensors] = (tmp_path / "place").rglob("*.safetensors")
        tensors.write_bytes(b"x" * tensors.stat().st_size)
    job = submit(RESTORES, hyperparameters={"place": str(tmp_path / "place")}, distribution=TWO_RANKS)
    lines = [line for line in of_both_ranks(job) if "error:" in line]
    why = "does not fit" if damage == "another model" else "is damaged"
    assert lines[0].startswith("[rank 0] error: ")
    assert lines[1].startswith("[rank 1] error: rank 0 cannot restore: ")
    assert [why in line for line in lines] == [True, True], lines
