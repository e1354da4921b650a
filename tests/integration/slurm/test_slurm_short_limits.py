"""Jobs in a partition whose time limit is shorter than the notice that their scripts ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import Configuration
from slurm_fixtures import SlurmOf
from slurm_jobs import submit, wait_for_end

from cloudtrain import FailureClass, JobStatus

NEVER_SAVES = """
import time
print("begins", flush=True)
time.sleep({seconds})
print("done", flush=True)
"""


def test_a_limit_shorter_than_the_notice(slurm_of: SlurmOf, tmp_path: Path) -> None:
    """A short job has its time; a long one without checkpoints is not restarted over and over."""
    slurm_of(Configuration(partitions=("main Default=YES MaxTime=1",), name="short"))
    options = {"poll_seconds": 1}
    words = "partition main: the time limit is 1 min. The job begins to end 20 s before it"
    jobs = []
    for name, seconds in (("short", 20), ("long", 600)):
        with pytest.warns(UserWarning, match=words):
            script = NEVER_SAVES.format(seconds=seconds)
            jobs.append(submit(tmp_path, script, name, nodes=1, platform_options=options))
    short, long = (wait_for_end(job, 180) for job in jobs)
    assert short.status == JobStatus.COMPLETED
    described = long.describe()
    assert (described.status, described.attempt) == (JobStatus.INTERRUPTED, 0)
    assert described.failure
    assert described.failure.failure_class == FailureClass.TIME_LIMIT
    assert "saved no checkpoint" in described.failure.message
    assert "platform_options.time" in described.failure.hint
    assert long.logs().count("begins") == 1
