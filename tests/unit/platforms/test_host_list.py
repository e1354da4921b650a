"""Lists of hosts, as people type them and as hostfiles have them."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.hosts.host_list import NamedHost, parse_hostfile, parse_hosts
from cloudtrain.platforms.hosts.render import render, resolve
from cloudtrain.spec import TrainingJob

LISTS = {
    "server1:4,server2:4": ["server1:4", "server2:4"],
    "b,a": ["b", "a"],
    "b,a,b": ["b:2", "a"],
    "me@b:2, 10.0.0.7:2": ["me@b:2", "10.0.0.7:2"],
    "[fd00::7]:4": ["[fd00::7]:4"],
}


@pytest.mark.parametrize("text", LISTS)
def test_a_list(text: str) -> None:
    hosts = parse_hosts(text)
    assert [str(host) for host in hosts] == LISTS[text]
    assert parse_hosts(LISTS[text]) == hosts


def test_a_hostfile_of_each_launcher() -> None:
    text = """
    # Open MPI, Horovod
    server1 slots=4 max_slots=8
    server2 slots = 4   # the second
    server3:4
    server3:4
    server4:4 user=me
    """
    found = parse_hostfile(text, "hosts.txt")
    assert [str(host) for host in found] == ["server1:4", "server2:4", "server3:8", "me@server4:4"]
    assert found[-1].destination == "me@server4"


WRONG = {
    "server1:x": "'x' is not a number of slots",
    "server1:0": "'0' is not a number of slots",
    "server1:": "'' is not a number of slots",
    "-oProxyCommand=reboot": "is not a name of a host",
    "a,-b@c": "'-b' is not a name of a host or a user",
    "a,,b": "'' is not a name of a host",
    "[nope]:1": "is not a name of a host",
    "": "is not a name of a host",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_list_is_refused(text: str) -> None:
    """Also names that ssh would take for options."""
    with pytest.raises(InvalidJob) as caught:
        parse_hosts(text)
    assert caught.value.message.startswith("platform_options.hosts: ")
    assert WRONG[text] in caught.value.message
    assert caught.value.hint


def test_a_wrong_hostfile_names_the_line() -> None:
    with pytest.raises(InvalidJob, match=r"h.txt, line 2: 'slot=4' is not understood"):
        parse_hostfile("a slots=2\nb slot=4", "h.txt")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
def test_this_machine_needs_no_ssh(name: str) -> None:
    assert NamedHost(name).is_this_machine


@pytest.mark.parametrize("name", ["server1", "192.0.2.1", "localhost.example"])
def test_other_machines_do(name: str) -> None:
    assert not NamedHost(name).is_this_machine


def _resolved(options: dict[str, Any], **fields: Any) -> TrainingJob:
    return resolve(TrainingJob(entry_point="train.py", job_name="j", platform_options=options, **fields))


def test_slots_become_ranks() -> None:
    job = _resolved({"hosts": "b:4,a:4"})
    assert (job.instance_count, job.platform_options) == (2, {"hosts": ["b:4", "a:4"]})
    assert job.distribution and job.distribution.processes
    assert job.distribution.processes.processes_per_host == 4
    torchrun = TrainingJob.from_dict({"distribution": {"torch_distributed": {}}}).distribution
    launched = _resolved({"hosts": "b:2,a:2"}, distribution=torchrun).distribution
    assert launched and launched.torch_distributed
    assert launched.torch_distributed.processes_per_host == 2
    assert _resolved({"hosts": "b,a,c"}, instance_count=2).instance_count == 2
    assert _resolved({"hosts": "localhost"}).distribution is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidJob, match="b has 4 slots and a has 1 slot, but every host") as caught:
        _resolved({"hosts": "b:4,a:1"})
    assert caught.value.hint == "Give them the same number, such as b:1,a:1."
    three = TrainingJob.from_dict({"distribution": {"mpi": {"processes_per_host": 3}}}).distribution
    assert _resolved({"hosts": "b:4,a:3"}, distribution=three).distribution == three
    with pytest.raises(InvalidJob, match="3 ranks do not fit into the 2 slots of a"):
        _resolved({"hosts": "b:4,a:2"}, distribution=three)
    with pytest.raises(InvalidJob, match="needs 3 hosts, but there are 2: b, a"):
        _resolved({"hosts": "b,a"}, instance_count=3)
    with pytest.raises(InvalidJob, match="the job names no hosts") as caught:
        _resolved({})
    assert "localhost:4" in caught.value.hint
    with pytest.raises(InvalidJob, match="hosts and hostfile both name"):
        _resolved({"hosts": "b", "hostfile": "h.txt"})
    with pytest.raises(InvalidJob, match=r"hostfile: /nowhere/h.txt cannot be read: No such file"):
        _resolved({"hostfile": "/nowhere/h.txt"})


def test_the_request_names_the_hosts() -> None:
    job = _resolved(
        {"hosts": "localhost:2"}, output_path="file:///out", checkpoint_s3_uri="file:///checkpoints"
    )
    body = render(job).body
    assert body["hosts"] == ["localhost"]
    assert body["hyperparameters"]["sagemaker_processes_per_host"] == "2"
