"""The rank that the others wait for is named by the stacks of all ranks, in many kinds of hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hanging_ranks import OUTSIDE
from local_jobs import Run

from cloudtrain import FailureClass
from cloudtrain.contract import FailureReport
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.diagnose.hangs import Hang, Position, judge, places_in


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The stacks of three ranks in each kind of hang."""
    program = [sys.executable, str(Path(__file__).with_name("hanging_ranks.py"))]
    folder = tmp_path_factory.mktemp("hangs")
    done = subprocess.run([*program, str(folder)], stdout=subprocess.PIPE, timeout=280, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def blame(stacks: str, ended: tuple[int, ...] = ()) -> FailureReport:
    """The report of a hang in which the heartbeats, of the scripts only, point to rank 0."""
    hang = Hang()
    positions = [list(Position(rank, 0, False, 20.0 - rank)) for rank in (0, 1, 2) if rank not in ended]
    hang.add("algo-1", {"positions": positions, "limit": 5.0, "tail": []})
    return hang.blame(FailureReport(FailureClass.HANG, "", rank=0), places_in(stacks), ended)


def test_a_rank_that_does_something_else(stacks: dict[str, str]) -> None:
    reports = {name: blame(stacks[name]) for name in OUTSIDE}
    assert {name: report.rank for name, report in reports.items()} == dict.fromkeys(OUTSIDE, 2)
    assert all("while rank 0 waits in all_reduce at hanging_ranks.py:" in r.message for r in reports.values())


@pytest.mark.parametrize("way", ["another_order", "left_the_loop"])
def test_a_rank_in_another_collective(way: str, stacks: dict[str, str]) -> None:
    report = blame(stacks[way])
    assert report.rank == 2
    assert "the ranks wait in different collectives: rank 0 in all_reduce at" in report.message


@pytest.mark.parametrize(
    "way", ["ddp_backward", "ddp_in_backward", "ddp_fewer_batches", "ddp_raised_in_thread"]
)
def test_a_rank_for_which_the_backward_pass_of_ddp_waits(way: str, stacks: dict[str, str]) -> None:
    report = blame(stacks[way])
    assert report.rank == 2, report.message
    assert "rank 0" in report.message
    assert "a backward pass" in report.message


def test_what_is_unclear_blames_no_rank(stacks: dict[str, str]) -> None:
    report = blame(stacks["all_different"])
    assert report.rank is None
    assert "It is unclear which rank is the cause" in report.summary()


def test_a_rank_that_has_ended(stacks: dict[str, str]) -> None:
    waiting = stacks["sleep"].partition("rank 2:")[0]
    report = blame(waiting, ended=(2,))
    assert (report.rank, report.message.partition(",")[0]) == (2, "it has ended with exit code 0")
    verdict = judge(places_in(waiting))
    assert verdict
    assert (verdict.ranks, verdict.why.partition(" at ")[0]) == ((0, 1), "all ranks wait in all_reduce")


def test_a_backward_pass_waits_for_a_rank_outside(stacks: dict[str, str]) -> None:
    outside = stacks["sleep"].partition("rank 2:")[2]
    backward = """Current thread 0x00007f3a349ecb80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 869 in _engine_run_backward
  File "/env/lib/python3.11/site-packages/torch/_tensor.py", line 625 in backward
  File "/job/train.py", line 7 in <module>
"""
    verdict = judge(places_in(f"rank 0:\n{backward}\nrank 1:\n{outside}"))
    assert verdict == ((1,), "rank 0 waits in a backward pass")


@pytest.mark.soak
def test_a_job_of_torch_alone(run: Run) -> None:
    job = run(
        """
        import time
        import torch, torch.distributed as dist
        from cloudtrain.observe import beat
        dist.init_process_group("gloo")
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(0.5)
        beat()
        if dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(torch.ones(3))
        """,
        distribution={"processes": {"processes_per_host": 2}},
        hang_timeout=2,
    )
    assert job.failure
    assert (job.failure.failure_class, job.failure.rank) == (FailureClass.HANG, 1), job.failure
    assert "while rank 0 waits in all_reduce at train.py:12" in job.failure.message
    dump = LocalPlatform().last_stacks(job.name)
    assert dump
    assert [(group.ranks, group.where) for group in dump.groups if not group.process] == [
        ("1", "<module> at train.py:11"),
        ("0", "all_reduce at train.py:12"),
    ]
