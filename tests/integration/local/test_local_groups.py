"""Hosts of several instance groups: ranks run only on those of the distribution."""

from __future__ import annotations

import re

import pytest
from local_jobs import Run

from cloudtrain import FailureClass

WHERE = """
import os
from cloudtrain import environment

print("group", os.environ["SM_CURRENT_INSTANCE_GROUP"], "rank", environment.rank(), "of", environment.world_size())
"""

FAILS_BESIDE = """
import os, sys, time

if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "data":
    sys.exit(5)
time.sleep(600)
"""

GROUPS = [
    {"instance_group_name": name, "instance_type": name, "instance_count": count}
    for name, count in (("data", 1), ("gpu", 2))
]


@pytest.mark.parametrize("kind", ["processes", "mpi"])
def test_other_hosts_run_the_script_once(run: Run, kind: str) -> None:
    """The first host is not part of the distribution: another one has rank 0, and starts mpirun."""
    distribution = {kind: {"processes_per_host": 2}, "instance_groups": ["gpu"]}
    job = run(WHERE, platform="local", instance_groups=GROUPS, distribution=distribution)
    assert job.failure is None
    assert sorted(re.findall(r"group.*", job.logs())) == [
        "group data rank 0 of 1",
        *(f"group gpu rank {rank} of 4" for rank in range(4)),
    ]


def test_the_failure_of_a_host_without_ranks_fails_the_job(run: Run) -> None:
    distribution = {"processes": {}, "instance_groups": ["gpu"]}
    failure = run(FAILS_BESIDE, platform="local", instance_groups=GROUPS, distribution=distribution).failure
    assert failure
    assert (failure.host, failure.exit_code, failure.failure_class) == ("algo-1", 5, FailureClass.USER_ERROR)
