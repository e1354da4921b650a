"""Hosts that cannot take part in a job, and hosts, supervisors and jobs that end in the middle."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest
from msgspec.structs import replace
from ssh_hosts import SshHosts

from cloudtrain import Job
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError, TrainingFailed
from cloudtrain.platforms import CheckStatus, get_platform, run_checks
from cloudtrain.platforms.base import Preflight
from cloudtrain.spec import TrainingJob

SLEEPS = """
import os, time

print("ready", os.environ["SM_CURRENT_HOST"], flush=True)
time.sleep(120)
"""
WRONG_HOSTS = """
Host n2
  UserKnownHostsFile {folder}/known-changed
Host n3
  Port 2
"""


@pytest.fixture(scope="module")
def hosts(three_hosts: SshHosts) -> SshHosts:
    three_hosts.write_script(SLEEPS)
    return three_hosts


@pytest.fixture(autouse=True)
def home(hosts: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of this process is that of the client."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(hosts.own / "home"))


def _refused(hosts: SshHosts, names: str, **options: Any) -> str:
    """The error of a job that does not start, with its hint. Nothing is left of it."""
    with pytest.raises(PlatformError) as caught:
        hosts.start("refused", {"hosts": names, **options})
    assert not hosts.job("refused").exists()
    hosts.wait_for_silence()
    return f"{caught.value.message}\n{caught.value.hint}"


@pytest.fixture(scope="module")
def wrong_ssh(hosts: SshHosts) -> str:
    """A wrong key for n1, another host key of n2 than before, and a port of n3 at which nothing listens."""
    hosts.client_config("changed", "other_host_key")
    hosts.client_config("wrong", "host_key", WRONG_HOSTS.format(folder=hosts.folder), keyed="n2 n3")
    return hosts.ssh_from_outside("wrong")


def test_every_host_that_refuses_is_named(hosts: SshHosts, wrong_ssh: str) -> None:
    assert _refused(hosts, "n1,n2,n3", ssh=wrong_ssh).splitlines() == [
        "n1 refused the login (publickey); the host key of n2 has changed; n3 does not accept connections",
        "Try it by hand: ssh n1. It has to work without a password: ssh-copy-id n1",
    ]


def test_doctor_reports_the_same(hosts: SshHosts, wrong_ssh: str) -> None:
    platform = get_platform("hosts")
    assert isinstance(platform, Preflight)
    job = TrainingJob(platform_options={"hosts": ["n1", "n2", "n3"], "ssh": wrong_ssh})
    found = dict(run_checks(platform.preflight(job, None, ())))
    assert {name: finding.status for name, finding in found.items()} == dict.fromkeys(
        ["host n1", "host n2", "host n3"], CheckStatus.FAILED
    )
    assert "refused the login" in found["host n1"].what
    assert "ssh-keygen -R n2" in found["host n2"].hint
    good = replace(job, platform_options={"hosts": ["n1"], "ssh": hosts.ssh_from_outside("config")})
    [(_, finding)] = run_checks(platform.preflight(good, None, ("json", "no_such_module")))
    assert finding.status == CheckStatus.WARNING
    assert "n1 and requirements.txt do not have no_such_module" in finding.what


def test_no_python_and_an_old_one(hosts: SshHosts) -> None:
    error = _refused(hosts, "n1", python="/nowhere/python")
    assert "n1 has no Python: " in error
    assert "/nowhere/python" in error
    old = hosts.folder / "python3.6"
    old.write_text(
        '#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 6, 9); exec(sys.argv[1])" "$3"\n'
    )
    old.chmod(0o755)
    error = _refused(hosts, "n2", python=str(old))
    assert f"n2: {old} is Python 3.6, and cloudtrain needs 3.9 or newer" in error


def test_a_name_that_does_not_resolve_on_another_host_and_a_full_disk(hosts: SshHosts) -> None:
    short = hosts.folder / "short-hosts"
    short.write_text("127.0.0.1 localhost\n")
    hosts.execute("n3", "mount", "--bind", str(short), "/etc/hosts")
    error = _refused(hosts, "n1,n3")
    hosts.execute("n3", "umount", "-l", "/etc/hosts")
    assert "n3 cannot resolve the name n1, the first host of the list" in error
    state = hosts.folder / "state-n3"
    state.mkdir(exist_ok=True)
    hosts.execute("n3", "mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(state))
    error = _refused(hosts, "n3")
    hosts.execute("n3", "umount", "-l", str(state))
    assert "n3: the disk is full: 1 MB are free for" in error


def test_a_folder_that_is_not_shared(hosts: SshHosts) -> None:
    shared = hosts.own / "shared"
    shared.mkdir()
    assert f"n1 does not see the folder of this machine at {shared}" in _refused(
        hosts, "n1", folder=str(shared)
    )
    assert not any(shared.iterdir())
    error = _refused(hosts, "n1", folder="/nowhere")
    assert "platform_options.folder: /nowhere cannot be used: No such file or directory" in error


def _start(hosts: SshHosts, name: str, names: str, **fields: Any) -> Job:
    job = hosts.start(name, {"hosts": names}, **fields)
    hosts.wait_for(name, "ready", names.count(",") + 1)
    return job


def _failure(job: Job) -> FailureReport:
    with pytest.raises(TrainingFailed):
        job.wait()
    assert job.failure
    return job.failure


def test_a_killed_supervisor_leaves_no_ranks(hosts: SshHosts) -> None:
    job = _start(hosts, "orphans", "n1,n2")
    assert len(hosts.processes("n2")) >= 3  # the runtime, the program that started it, and a rank
    os.kill(json.loads((hosts.job("orphans") / "state.json").read_text())["pid"], signal.SIGKILL)
    hosts.wait_for_silence()
    assert "the supervisor of the job is gone" in _failure(job).message


def test_a_stopped_job_ends_on_all_hosts(hosts: SshHosts) -> None:
    job = _start(hosts, "stops", "n1,n2")
    began = time.monotonic()
    job.stop()
    assert job.wait().status == JobStatus.STOPPED
    assert time.monotonic() - began < 60
    hosts.wait_for_silence()


def test_a_host_that_is_killed_is_named(hosts: SshHosts) -> None:
    job = _start(hosts, "killed", "n1,n2,n3")
    hosts.kill("n3")
    failure = _failure(job)
    hosts.start_server(hosts.machines[2])
    assert (failure.failure_class, failure.host) == (FailureClass.HOST_LOST, "n3")
    assert "host n3 was lost" in failure.message
    hosts.wait_for_silence()


@pytest.mark.soak
def test_an_unplugged_host_ends_its_ranks(hosts: SshHosts) -> None:
    """It gets neither a message nor an error; the job fails, and names it."""
    job = _start(hosts, "unplugged", "n1,n2,n3", host_timeout=15)
    hosts.machines[1].unplug()
    assert "host n2 was lost" in _failure(job).message
    hosts.wait_for_silence()
    hosts.machines[1].plug()


@pytest.mark.soak
def test_a_disk_that_fills_up_while_files_arrive(hosts: SshHosts) -> None:
    state = hosts.folder / "state-n3"
    hosts.execute("n3", "mount", "-t", "tmpfs", "-o", "size=300m,mode=700", "none", str(state))
    data = hosts.own / "large"
    data.mkdir()
    with (data / "large.bin").open("wb") as file:
        file.truncate(400 << 20)
    job = hosts.start("fills", {"hosts": "n3"}, inputs={"train": data.as_uri()})
    failure = _failure(job)
    hosts.wait_for_silence()
    hosts.execute("n3", "umount", "-l", str(state))
    assert failure.failure_class == FailureClass.DISK_FULL
    assert "n3: No space left on device" in failure.message
