"""The benchmarks that need only this machine run to their end, at their smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest, unsized


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("start.py imports first_line run", "first line, one rank"),
        ("submit_phases.py", "runs the first line of the script"),
        ("regression.py --base HEAD", "cost of `from cloudtrain import Estimator`"),
        ("output_rate.py", "lines passed on"),
        ("log_metrics.py", "log() of one value"),
        ("growth.py jobs looks", "`cloudtrain list` of 10,000 jobs, first look"),
        ("growth.py ranks", "coordinator of 8 ranks: CPU for an operation"),
        ("negotiation.py", "negotiation, 128 ranks, one by one: CPU of rank 0"),
        ("collectives.py", "allreduce of 4 KB"),
        ("training.py step hooks timeline memory", "copies of the gradients, later steps"),
        ("checkpoint.py", "checkpoint of 1024 MiB: stall, second save, in plain copies"),
        ("checkpoint_faults.py", "checkpoints in s3: lost"),
        ("goodput.py", "goodput, a fault in 60 s"),
        ("on_sagemaker.py pack submit logs", "submit a script that has changed: AWS calls"),
    ],
)
def test_a_benchmark_runs(command: str, printed: str, tmp_path: Path) -> None:
    figures = run_smallest(command, tmp_path)
    assert unsized(printed) in {unsized(figure["what"]) for figure in figures}
