"""The descriptions of jobs whose objects are gone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recorded_jobs import BEGAN, Objects, ended, event, failed_with, job, pod, told

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.ending import Ending
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import JOB
from cloudtrain.platforms.kubernetes.job import GONE, KubernetesJob, forget, recall, remember
from cloudtrain.platforms.kubernetes.life.describe import describe, look_at
from cloudtrain.storage import state_home

RAISED = FailureReport(FailureClass.USER_ERROR, "no batches", rank=1, host="train-0", exit_code=1)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))


def test_a_job_is_remembered_in_its_place_only():
    pods = [pod("train-0", "Failed", state=ended(1, ending=failed_with(RAISED, metrics={"loss": 1.0})))]
    found = describe(look_at(Objects(job(told("Failed", after=61), hosts=1), pods), BEGAN + 90))
    remember(found, "prod/ml/jobs.batch")
    recalled = recall("train", "prod/ml/jobs.batch")
    assert recalled is not None
    assert (recalled.status, recalled.failure, recalled.metrics) == (found.status, RAISED, {"loss": 1.0})
    assert recalled.hosts == found.hosts
    assert recalled.details["object"] == GONE
    assert recall("train", "test/ml/jobs.batch") is None
    [path] = (path for path in state_home().rglob("train.json"))
    path.write_bytes(path.read_bytes()[:-1])
    assert recall("train", "prod/ml/jobs.batch") is None
    forget("train")
    forget("train")
    assert recall("train", "prod/ml/jobs.batch") is None


def _no_log(*_: object, **__: object) -> None:
    raise KubeNotFound("the pod is gone")


def _second_look(gone: Objects) -> JobDescription:
    """The description of a job that ran at the first look, at the second."""
    looks = iter([Objects(job(hosts=1), [pod("train-0")]), gone])
    watch = SimpleNamespace(snapshot=lambda **_: next(looks))
    api = SimpleNamespace(context="c", namespace="n", now=lambda: BEGAN + 300, pod_log=_no_log)
    life = KubernetesJob(cast(Any, api), JOB, "train", watch=cast(Any, watch))
    assert life.describe().status == JobStatus.RUNNING
    return life.describe()


def test_a_job_whose_end_and_deletion_fall_between_two_looks():
    """With a short TTL, or a client that was paused: the last state of the object counts."""
    over = job(told("Complete", after=61), hosts=1)
    over["metadata"]["deletionTimestamp"] = over["metadata"]["creationTimestamp"]
    assert _second_look(Objects(None, deleted=over)).status == JobStatus.COMPLETED


def test_a_job_that_was_deleted_while_no_one_watched():
    """Its leader may have left how it ended; else that is unknown. Others may create events."""
    done = ended(0, ending=Ending(JobStatus.COMPLETED, metrics={"loss": 1.0}))
    found = _second_look(Objects(None, gone=[pod("train-0", "Succeeded", state=done)]))
    assert (found.status, found.metrics) == (JobStatus.COMPLETED, {"loss": 1.0})
    found = _second_look(Objects(None, events=[event("Completed", "Job completed")]))
    assert found.failure and "while no one watched: how the job ended is unknown" in found.failure.message
    found = _second_look(Objects(None, deleted=job(hosts=1)))
    assert found.failure and "while the job lived" in found.failure.message
