"""Ranks that each restore for themselves, on hosts that do not see the same files, never train from different steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from waiting import wait_for_end
from warm_python import WITHOUT_COMPILER

from cloudtrain import Job, JobStatus
from cloudtrain.checkpoint import Checkpointer

Submit = Callable[..., Job]

RESTORES = """
    import argparse
    import os
    from pathlib import Path

    import torch

    import cloudtrain.distributed.torch as hvd
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.errors import CheckpointError

    WITHOUT_COMPILER
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=Path)
    hosts = parser.parse_args().hosts

    hvd.init()
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    # One path, and another folder for each rank, as on the disks of two hosts.
    os.chdir(hosts / str(hvd.rank()))
    disk = "/proc/self/cwd"

    def restored(checkpointer, **options):
        try:
            checkpoint = checkpointer.restore(**options)
        except CheckpointError as error:
            return error.message
        return checkpoint.step if checkpoint else None

    fast = Checkpointer(hosts / "shared", local=disk)
    print("fast:", restored(fast), flush=True)
    fast.save(15, {"step": 15})
    fast.save(20, {"step": 20})
    fast.close()

    hvd.barrier()
    split = Checkpointer(f"{disk}/split")
    found = hvd.allgather_object(restored(split))
    print("split:", found if hvd.rank() == 0 else "", flush=True)
    print("alone:", restored(Checkpointer(f"{disk}/split"), alone=True), flush=True)

    hvd.barrier()
    fresh = Checkpointer(f"{disk}/fresh")
    print("fresh:", restored(fresh), flush=True)
    hvd.barrier()
    fresh.save(5, {"step": 5})
    fresh.close()
    hvd.barrier()
    # Rank 1 has no file of it. But the training does not start from zero: rank 0 has saved since the ranks restored.
    print("at the end:", restored(Checkpointer(f"{disk}/fresh")), flush=True)
    hvd.shutdown()
""".replace("WITHOUT_COMPILER", WITHOUT_COMPILER)


def save(place: Path, *steps: int) -> None:
    place.mkdir(parents=True)
    with Checkpointer(place) as checkpointer:
        for step in steps:
            checkpointer.save(step, {"step": step})


def test_ranks_on_different_disks(submit: Submit, tmp_path: Path) -> None:
    save(tmp_path / "shared", 10)
    save(tmp_path / "0", 10, 20)  # killed between the two commits of step 20
    (tmp_path / "1").mkdir()
    save(tmp_path / "0" / "split", 7)
    job = submit(
        RESTORES,
        hyperparameters={"hosts": str(tmp_path)},
        distribution={"processes": {"processes_per_host": 2}},
    )
    lines = sorted(wait_for_end(job).splitlines())
    assert job.status == JobStatus.COMPLETED, job.logs()

    def of(what: str) -> list[str]:
        return [line.partition(f"{what}: ")[2] for line in lines if f"] {what}: " in line]

    assert of("fast") == ["10", "10"]
    assert any("step 20 is in file:///proc/self/cwd only" in warning for warning in job.describe().warnings)
    assert Checkpointer(tmp_path / "shared").steps() == [10, 15, 20]
    restored = Checkpointer(tmp_path / "0").restore()
    assert restored is not None and restored.state == {"step": 20}

    [split] = [text for text in of("split") if text]
    assert "has restored" in split and "but this rank" in split, split
    assert of("alone") == ["7", "None"]
    assert of("fresh") == ["None", "None"]
    assert of("at the end") == ["5", "None"]
