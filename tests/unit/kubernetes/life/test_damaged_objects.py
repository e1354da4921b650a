"""Objects with values that no API server of today sends: they are described as far as it goes, and never raise."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from recorded_jobs import (
    BEGAN,
    Objects,
    ended,
    event,
    failed_with,
    job,
    job_set,
    mpi_job,
    pod,
    told,
    train_job,
    unscheduled,
    waiting,
    workload,
)

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.platforms.kubernetes.labels import FAILED, STOPPED
from cloudtrain.platforms.kubernetes.life.describe import StateLog, describe, look_at
from cloudtrain.platforms.kubernetes.life.stop import child_jobs, stop_patch

STRANGE = (
    None,
    [],
    {},
    7,
    -1,
    True,
    "",
    "²",
    "\x1b[31m\n",
    "[" * 5000,
    [None, 3, {"name": []}],
    {"a": {"b": []}},
)
REPORT = FailureReport(FailureClass.USER_ERROR, "no", rank=1, host="train-1")
FULL = "0/3 nodes are available: 3 Insufficient cpu."
OBJECTS = {
    "failed": Objects(
        job(told("Failed", reason="PodFailurePolicy"), annotations={STOPPED: "never", FAILED: "{"}),
        [
            pod("train-0", "Failed", state=ended(1, ending=failed_with(REPORT))),
            pod("train-1", "Failed", reason="Evicted"),
        ],
        [event("SuccessfulCreate", "Created pod: train-0-x", kind="Normal")],
        gone=[pod("train-1", deletionTimestamp="2026-11-23T03:00:00Z", uid="old")],
    ),
    "waits": Objects(
        job_set(),
        [
            pod("train-node-0-0", "Pending", node="", conditions=[unscheduled(FULL)]),
            pod("train-node-0-1", "Pending", state=waiting("ImagePullBackOff")),
        ],
        [event("Failed", "Failed to pull image"), event("FailedCreate", "Error creating: x")],
    ),
    "queued": Objects(
        train_job(spec={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "a"}),
        workload=workload(
            told("QuotaReserved", status="False", message="couldn't assign flavors to pod set main: x"),
            told("Evicted", reason="Preempted", message="x"),
            active=False,
        ),
    ),
    "stopped": Objects(
        mpi_job(told("Suspended"), run={"suspend": True}, annotations={STOPPED: "2026-11-23T03:00:00Z"})
    ),
}


def damaged(found: Any) -> Iterator[Any]:
    """``found`` with each of its values replaced by some of the strange ones, one at a time."""
    strange = itertools.cycle(STRANGE)
    for path in paths(found):
        for value in itertools.islice(strange, 5):
            changed = copy.deepcopy(found)
            parent = changed
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = value
            yield changed


def paths(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


@pytest.mark.parametrize("name", OBJECTS)
def test_no_value_makes_a_job_undescribable(name: str) -> None:
    good = OBJECTS[name]
    whole = {
        "owner": good.owner,
        "pods": list(good.pods),
        "events": list(good.events),
        "gone": list(good.gone),
        "workload": good.workload,
    }
    count = 0
    for changed in damaged(whole):
        lists = (changed[key] for key in ("pods", "events", "gone"))
        if not isinstance(changed["owner"], dict) or not all(isinstance(found, list) for found in lists):
            continue  # the watch makes these itself
        if any(not isinstance(one, dict) for key in ("pods", "events", "gone") for one in changed[key]):
            continue
        if not isinstance(changed["workload"], dict | None):
            continue
        look = look_at(Objects(**changed), BEGAN + 100)
        json.dumps(describe(look).to_dict())
        StateLog().update(look)
        stop_patch(changed["owner"], {}, suspend=False)
        child_jobs(changed["owner"])
        count += 1
    assert count > 100
