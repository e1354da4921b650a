"""Objects as a hostile user of the namespace, or a hostile server, may write them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recorded_jobs import BEGAN, Objects, at, event, job, pod

from cloudtrain.errors import JobNotFound
from cloudtrain.platforms.kubernetes.api.kinds import JOB
from cloudtrain.platforms.kubernetes.job import KubernetesJob
from cloudtrain.platforms.kubernetes.life.describe import describe, look_at
from cloudtrain.platforms.kubernetes.life.job_watch import LONGEST_TEXT, slim_event
from cloudtrain.platforms.kubernetes.life.objects import parse_time
from cloudtrain.platforms.kubernetes.life.pods import INDEX

API = SimpleNamespace(context="c", namespace="n", now=lambda: BEGAN + 300)


def test_an_object_of_another_name_is_not_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name would be that of a file, anywhere on this machine."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    owner: dict[str, Any] = {**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    owner["metadata"] = {**owner["metadata"], "name": "../../../outside"}
    watch = SimpleNamespace(snapshot=lambda **_: Objects(owner))
    with pytest.raises(JobNotFound):
        KubernetesJob(cast(Any, API), JOB, "train", watch=cast(Any, watch)).describe()
    assert not list(tmp_path.rglob("outside*"))


def test_an_index_of_many_digits() -> None:
    found: dict[str, Any] = dict(pod("train-0"))
    found["metadata"] = {**found["metadata"], "annotations": {INDEX: "1" * 5000}}
    owner: dict[str, Any] = dict(job())
    owner["metadata"] = {**owner["metadata"], "annotations": {}}
    assert describe(look_at(Objects(owner, [found]), BEGAN + 1)).hosts


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"]
)
def test_a_time_that_no_clock_shows(time: str) -> None:
    assert parse_time(time) is None


@pytest.mark.parametrize("reason", ["FailedMount", "FailedCreate"])
def test_an_event_cannot_claim_that_it_lasted_for_days(reason: str) -> None:
    """A client that waits would end the job."""
    starting: dict[str, Any] = dict(pod("train-0", "Pending"))
    starting["status"] = {"phase": "Pending"}
    message = 'pods "x" is forbidden: secret "y" not found'
    forged: dict[str, Any] = dict(event(reason, message, starting))
    forged["metadata"] = {"creationTimestamp": at(5)}
    forged["firstTimestamp"] = "2020-01-01T00:00:00Z"
    pods = [] if reason == "FailedCreate" else [starting]
    why = look_at(Objects(job(), pods, [forged]), BEGAN + 10).verdict.why
    assert why and "y" in why.sentence and why.is_error
    assert not why.is_hopeless(BEGAN + 10) and why.is_hopeless(BEGAN + 200)


def test_a_long_event_is_cut() -> None:
    assert len(slim_event({"message": "x" * 1_000_000})["message"]) == LONGEST_TEXT
