"""A rank that the kernel kills at the limit of its container's memory: the report has the minute before."""

from __future__ import annotations

from pathlib import Path

from container_jobs import jobs_in, wait_for_end
from engine_daemon import Engine

from cloudtrain import FailureClass

LIMIT = 256 << 20
FILLS = """
    import os, time
    data = []
    while True:
        if os.environ["RANK"] == "1":
            data.append(bytearray(b"x") * (4 << 20))
        time.sleep(0.1)
"""


def test_the_report_has_the_last_minute_of_memory(engine: Engine, tmp_path: Path) -> None:
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            FILLS, options={"memory": f"{LIMIT}b"}, distribution={"processes": {"processes_per_host": 2}}
        )
        description = wait_for_end(job).describe()
    failure = description.failure
    assert failure
    assert (failure.failure_class, failure.rank, failure.exit_code) == (FailureClass.OUT_OF_MEMORY, 1, 137)
    first, *lines = failure.memory.splitlines()
    assert first.startswith("Memory of the host in the last minute (limit 0.25 GiB, peak with caches 0.2")
    sizes = [float(line.split()[5]) for line in lines]
    assert len(sizes) >= 3
    assert sizes[-1] > 2 * sizes[0] > 0
    assert "rank 1: 0.1" in failure.memory
    sample = description.samples["algo-1"]
    assert sample.memory_limit == LIMIT
    assert sample.memory and 0.6 * LIMIT < sample.memory <= LIMIT
    assert sample.ranks[1] > 2 * sample.ranks[0]
