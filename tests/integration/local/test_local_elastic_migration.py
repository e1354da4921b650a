"""An elastic training moves off a host that is taken back: the world gets smaller, and no step is lost or repeated."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from elastic_steps import SCRIPT, check_each_step_once
from local_jobs import Run, events, wait_for_end, wait_until

from cloudtrain import JobStatus

pytest.importorskip("torch")

PROCESSES = {"processes": {"processes_per_host": 1}}
AGENT = {"torch_distributed": {"processes_per_host": 1, "max_restarts": 2}}


@pytest.mark.parametrize(
    ("call", "distribution"),
    [
        ("commit", PROCESSES),
        pytest.param("check_host_updates", AGENT, marks=pytest.mark.soak),
    ],
)
def test_a_smaller_world_continues_with_the_next_step(
    run: Run, call: str, distribution: dict[str, Any]
) -> None:
    """The host of rank 0 is taken back, with its files."""
    job = run(
        SCRIPT.replace("commit", call),
        instance_count=3,
        min_instance_count=2,
        distribution=distribution,
        wait=False,
    )
    wait_until(lambda: job.logs().count("] step ") > 3, "steps", 120)
    runtimes = {event["source"]: event["pid"] for event in events(job, "host")}
    os.kill(runtimes["algo-1"], signal.SIGUSR1)
    described = wait_for_end(job, 150).describe()
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.details["dropped hosts"] == "algo-1"
    check_each_step_once(job.logs())


@pytest.mark.parametrize("distribution", [PROCESSES, pytest.param(AGENT, marks=pytest.mark.soak)])
def test_sigterm_to_all_ranks_ends_none_before_the_state_is_written(
    run: Run, distribution: dict[str, Any]
) -> None:
    job = run(SCRIPT, instance_count=2, distribution=distribution, wait=False)
    wait_until(lambda: job.logs().count("] step ") > 3, "steps", 120)
    job.preempt()
    assert wait_for_end(job, 150).status == JobStatus.COMPLETED, job.logs()
    check_each_step_once(job.logs())
