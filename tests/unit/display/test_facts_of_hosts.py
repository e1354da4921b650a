"""The hosts of a job in ``cloudtrain describe``."""

from __future__ import annotations

from cloudtrain._display.facts import MOST_HOSTS, facts
from cloudtrain._display.view import JobView
from cloudtrain.contract import JobStatus
from cloudtrain.observe import Sample
from cloudtrain.platforms import HostState, JobDescription


def shown(*hosts: HostState, status: JobStatus = JobStatus.RUNNING, place: str = "") -> dict[str, str]:
    return dict(facts(JobView(JobDescription("job", "p", status, 0.0, hosts=hosts, place=place), 0.0)))


def test_only_hosts_that_differ_have_lines():
    found = shown(HostState("job-0", "Running", "on node gpu-1"), HostState("job-1", "train"))
    assert found["job-0"] == "Running on node gpu-1"
    assert "job-1" not in found
    assert "job-0" not in shown(HostState("job-0", "Succeeded", "on node"), status=JobStatus.COMPLETED)


def test_of_many_hosts_those_that_differ_are_first():
    hosts = [HostState(f"job-{index}", "Running", "on node a") for index in range(200)]
    hosts[150] = HostState("job-150", "Pending", "0/3 nodes have enough free CPUs")
    found = shown(*hosts)
    lines = [label for label in found if label.startswith("job-")]
    assert len(lines) == MOST_HOSTS
    assert lines[:3] == ["job-150", "job-0", "job-1"]
    assert found[""] == "and 184 more hosts: see --json"


def test_the_label_of_a_place():
    assert shown(place="https://console")["console"] == "https://console"
    assert shown(place="/jobs/job")["folder"] == "/jobs/job"


def test_samples_are_in_the_order_of_their_hosts():
    samples = {f"algo-{number}": Sample(time=0.0, seconds=1.0, cpu=1.0, cpus=2.0) for number in (10, 2, 1)}
    description = JobDescription("job", "p", JobStatus.RUNNING, 0.0, samples=samples)
    labels = [label for label, _ in facts(JobView(description, 0.0)) if label.endswith(" used")]
    assert labels == ["algo-1 used", "algo-2 used", "algo-10 used"]
