"""Spare hosts, and fewer hosts, in requests, and the platforms that refuse them; what a spare host has prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import JobStatus, Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.inputs.fetch import mark_prepared, take_prepared
from cloudtrain.runtime.supervisor.places import place_details
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import ObjectInfo
from cloudtrain.submission import prepare


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("pass")
    return str(tmp_path / "train.py")


def job(script: str, platform: str, **fields: Any) -> dict[str, Any]:
    return {"entry_point": script, "platform": platform, "job_name": "job", "spare_hosts": 1, **fields}


SPARES = ("spare_hosts", {}, "hosts, kubernetes, slurm")
FEWER = ("min_instance_count", {"spare_hosts": 0, "min_instance_count": 1}, "hosts, local, slurm")
"""A field, the job that sets it, and the platforms that have it."""


@pytest.mark.parametrize(
    ("wish", "platform", "why"),
    [
        (SPARES, "sagemaker", "SageMaker ends a job that loses an instance"),
        (SPARES, "local", "all hosts are processes of this machine"),
        (SPARES, "container", "all hosts are processes of this machine"),
        (SPARES, "pbs", "the platform pbs does not support it"),
        (FEWER, "sagemaker", "SageMaker ends a job that loses an instance"),
        (FEWER, "kubernetes", "Kubernetes starts new pods"),
        (FEWER, "container", "the platform container does not support it"),
    ],
)
def test_a_platform_refuses_what_it_cannot_do_about_lost_hosts(
    script: str,
    wish: tuple[str, dict[str, int], str],
    platform: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    field, fields, able = wish
    with pytest.raises(InvalidJob, match=f"^{field}: {why}") as caught:
        prepare(job(script, platform, **fields))
    assert caught.value.hint == f"Leave it out. It works on: {able}."


def test_the_least_number_of_hosts_is_not_above_their_number(script: str) -> None:
    few = {"spare_hosts": 0, "platform_options": {"hosts": "a,b,c"}}
    assert prepare(job(script, "hosts", min_instance_count=3, **few)).request.body["min_instance_count"] == 3
    with pytest.raises(InvalidJob, match=r"^min_instance_count: 4 is more than instance_count, 3"):
        prepare(job(script, "hosts", min_instance_count=4, **few))


@pytest.mark.parametrize("field", ["spare_hosts", "min_instance_count"])
def test_groups_have_no_spare_hosts_and_are_needed_whole(script: str, field: str) -> None:
    groups = [{"instance_group_name": "a", "instance_type": "x", "instance_count": 2}]
    with pytest.raises(InvalidJob, match=f"{field}: cannot be combined with instance_groups"):
        prepare(job(script, "slurm", **{"spare_hosts": 0, "instance_groups": groups, field: 1}))


@pytest.mark.parametrize(
    ("count", "names", "places"), [(1, "a,b,c", 2), (2, "a,b,c,d", 2), (1, "a,b", 1), (3, "a,b,c", None)]
)
def test_the_last_names_of_a_list_are_spare(script: str, count: int, names: str, places: int | None) -> None:
    fields = job(script, "hosts", instance_count=count, platform_options={"hosts": names})
    if places is None:
        with pytest.raises(InvalidJob, match="the job needs 3 hosts and 1 spare_hosts, but there are 3"):
            prepare(fields)
        return
    body = prepare(fields).request.body
    assert (body["host_count"], body["spare_hosts"]) == (places, 1)
    assert len(body["hosts"]) == places + 1


def test_data_that_was_prepared_is_taken_once(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [ObjectInfo("b", 2, 5.0), ObjectInfo("a", 1, 5.0)]
    assert not take_prepared(paths, "train", found)
    mark_prepared(paths, "train", found)
    assert not take_prepared(paths, "test", found)
    assert take_prepared(paths, "train", found[::-1])
    assert not take_prepared(paths, "train", found), "a script has run there since"
    mark_prepared(paths, "train", found)
    assert not take_prepared(paths, "train", [*found, ObjectInfo("c", 1, 6.0)]), "the data has changed"


def test_details_name_the_spare_hosts() -> None:
    record = JobRecord(JobStatus.RUNNING, 1.0, spares=("c", "d"))
    assert place_details(record) == {"spare hosts": "c, d wait"}
    used = JobRecord(JobStatus.RUNNING, 1.0, spares=("d",), taken=("c takes the place of a",))
    assert place_details(used) == {"spare hosts": "c takes the place of a; d waits"}
    assert place_details(JobRecord(JobStatus.RUNNING, 1.0)) == {}
    assert JobRecord.from_json(used.to_json()) == used
