"""The processors and the memory of each node of a job, by the variables of its batch step, as Slurm 22.05 sets them."""

from __future__ import annotations

import pytest

from cloudtrain.runtime.slurm.step import granted


@pytest.mark.parametrize(
    ("cpus", "more", "text"),
    [
        ("3(x2)", {"SLURM_MEM_PER_CPU": "100"}, "3 CPUs, 300 MB of memory"),
        ("1", {"SLURM_MEM_PER_NODE": "8192"}, "1 CPU, 8 GB of memory"),
        ("8(x2),4", {"SLURM_MEM_PER_NODE": "0"}, "4 to 8 CPUs, all memory"),
        ("16", {"SLURM_MEM_PER_GPU": "600", "SLURM_GPUS_PER_NODE": "a100:2"}, "16 CPUs, 1.17 GB of memory"),
        ("2", {"SLURM_MEM_PER_GPU": "600"}, "2 CPUs"),
        ("2", {"SLURM_MEM_PER_NODE": "much"}, "2 CPUs"),
        ("", {}, ""),
    ],
)
def test_processors_and_memory(cpus: str, more: dict[str, str], text: str) -> None:
    assert granted({"SLURM_JOB_CPUS_PER_NODE": cpus, **more}) == text
