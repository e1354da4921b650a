"""An elastic training moves off a host that is taken back: the world gets smaller, and no step is lost or repeated."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from local_jobs import Run, events, wait_for_end, wait_until

from cloudtrain import JobStatus

pytest.importorskip("torch")

SCRIPT = """
    import os, time
    import torch
    import cloudtrain.distributed.torch as hvd
    from cloudtrain.distributed.torch import elastic

    hvd.init()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @elastic.run
    def train(state):
        print("begins", hvd.rank(), hvd.size(), os.environ["SM_CURRENT_HOST"], "at", state.step, flush=True)
        last = state.step + 3 if hvd.size() < 3 else 10_000
        for step in range(state.step, last):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            if hvd.rank() == 0:
                print("step", step, "weight", model.weight.item(), flush=True)
            state.step = step + 1
            {ends}
            time.sleep(0.05)

    train(elastic.TorchState(model, optimizer, step=0))
    hvd.shutdown()
"""


AGENT = {"torch_distributed": {"processes_per_host": 1, "max_restarts": 2}}


@pytest.mark.parametrize(
    ("call", "distribution"),
    [
        ("commit", {"processes": {"processes_per_host": 1}}),
        pytest.param("check_host_updates", AGENT, marks=pytest.mark.soak),
    ],
)
def test_a_smaller_world_continues_with_the_next_step(
    run: Run, call: str, distribution: dict[str, Any]
) -> None:
    """The host of rank 0 is taken back, with its files."""
    job = run(
        SCRIPT.replace("{ends}", f"state.{call}()"),
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
    steps = [int(step) for step in re.findall(r"\] step (\d+) weight", job.logs())]
    assert steps == [*range(steps[-1] + 1)], "each step once"
    weights = [float(weight) for weight in re.findall(r"\] step \d+ weight (\S+)", job.logs())]
    speed, expected = 1.0, weights[0]
    for weight in weights[1:]:
        speed = 0.9 * speed + 1.0
        expected -= 0.1 * speed
        assert weight == pytest.approx(expected, abs=1e-3)
