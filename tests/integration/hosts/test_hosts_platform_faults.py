"""Hosts that cannot take part in a job, and hosts, supervisors and jobs that end in the middle."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from ssh_hosts import SshHosts

SLEEPS = """
import os, time
import helper

print("ready", os.environ["SM_CURRENT_HOST"], flush=True)
time.sleep(120)
"""
WRONG_HOSTS = """
Host n1
  IdentityFile {folder}/other_key
Host n2
  UserKnownHostsFile {folder}/known-changed
Host n3
  Port 2
"""
LIST = ("--set", "platform_options.hosts=n1,n2,n3", "--set", "distribution.processes.processes_per_host=2")


@pytest.fixture(scope="module")
def hosts(three_hosts: SshHosts) -> SshHosts:
    three_hosts.write_script(SLEEPS)
    return three_hosts


def _refused(hosts: SshHosts, *options: str, ssh: str = "") -> str:
    """The error of a job that does not start. Nothing is left of it."""
    code, output = hosts.submit("refused", *options, ssh=ssh)
    assert code == 1, output
    assert "Traceback" not in output
    assert not hosts.job("refused").exists()
    hosts.wait_for_silence(10)
    return output


def test_every_host_that_refuses_is_named(hosts: SshHosts) -> None:
    """A wrong key, a changed host key, and a port at which nothing listens."""
    hosts.client_config("changed", "other_host_key")
    ssh = hosts.client_config("wrong", "host_key", WRONG_HOSTS.format(folder=hosts.folder), "n2 n3")
    output = _refused(hosts, *LIST, ssh=ssh)
    assert "n1 refuses the login: root@n1: Permission denied (publickey)" in output
    assert "the host key of n2 has changed: it was reinstalled, or another machine is in its place" in output
    assert "n3 cannot be reached: ssh: connect to host n3 port 2: Connection refused" in output
    assert "ssh-copy-id n1" in output


def test_doctor_says_the_same(hosts: SshHosts) -> None:
    ssh = hosts.client_config("wrong", "host_key", WRONG_HOSTS.format(folder=hosts.folder), "n2 n3")
    process = hosts.run(
        *("cloudtrain", "doctor", "--platform", "hosts", "--json"),
        *("--set", "platform_options.hosts=n1,n3", "--set", f"platform_options.ssh={ssh}"),
    )
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    found = {check["name"]: check for check in json.loads(out)}
    assert found["host n1"]["outcome"] == "failed"
    assert "refuses the login" in found["host n1"]["what"]
    assert "ssh n3" in found["host n3"]["hint"]


def test_no_python_and_an_old_one(hosts: SshHosts) -> None:
    output = _refused(hosts, *LIST, "--set", "platform_options.python=/nowhere/python")
    assert "n1 has no Python: " in output
    assert "/nowhere/python" in output
    old = hosts.folder / "python3.6"
    old.write_text(
        '#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 6, 9); exec(sys.argv[1])" "$3"\n'
    )
    old.chmod(0o755)
    output = _refused(hosts, *LIST, "--set", f"platform_options.python={old}")
    assert f"n2: {old} is Python 3.6, and cloudtrain needs 3.9 or newer" in output


def test_a_name_that_another_host_does_not_know_and_a_full_disk(hosts: SshHosts) -> None:
    short = hosts.folder / "short-hosts"
    short.write_text("127.0.0.1 localhost\n")
    hosts.execute("n3", "mount", "--bind", str(short), "/etc/hosts")
    outputs = [_refused(hosts, *LIST)]
    short.write_text("127.0.1.1 n1\n10.77.0.9 n1\n")
    outputs.append(_refused(hosts, *LIST))
    hosts.execute("n3", "umount", "-l", "/etc/hosts")
    assert "n3 cannot resolve the name n1, the first host of the list" in outputs[0]
    assert "n3 takes n1 for 10.77.0.9, but n1 itself has 10.77.0.1" in outputs[1]
    state = hosts.folder / "state-n3"
    state.mkdir(exist_ok=True)
    hosts.execute("n3", "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(state))
    output = _refused(hosts, *LIST)
    hosts.execute("n3", "umount", "-l", str(state))
    assert "n3: the disk is full: 1 MB are free for" in output


def test_a_folder_that_is_not_shared(hosts: SshHosts) -> None:
    (hosts.own / "shared").mkdir()
    output = _refused(hosts, *LIST, "--set", f"platform_options.folder={hosts.own}/shared")
    assert f"n1 does not see the folder of this machine at {hosts.own}/shared" in output
    assert not any((hosts.own / "shared").iterdir())
    output = _refused(hosts, *LIST, "--set", "platform_options.folder=/nowhere")
    assert "platform_options.folder: /nowhere cannot be written: No such file or directory" in output


def _start(hosts: SshHosts, name: str, *options: str) -> None:
    code, output = hosts.submit(name, "--no-wait", *LIST, *options)
    assert code == 0, output
    hosts.wait_for(name, "ready", 6)


def _wait(hosts: SshHosts, name: str) -> str:
    return "".join(hosts.run("cloudtrain", "wait", name).communicate(timeout=60))


def test_a_killed_supervisor_leaves_no_ranks(hosts: SshHosts) -> None:
    _start(hosts, "orphans")
    assert len(hosts.processes("n2")) >= 4  # the runtime, the program that started it, and two ranks
    os.kill(json.loads((hosts.job("orphans") / "state.json").read_text())["pid"], signal.SIGKILL)
    hosts.wait_for_silence(15)
    assert "the supervisor of the job is gone" in _wait(hosts, "orphans")


def test_a_stopped_job_ends_on_all_hosts(hosts: SshHosts) -> None:
    _start(hosts, "stops")
    began = time.monotonic()
    hosts.run("cloudtrain", "stop", "stops").communicate(timeout=60)
    assert "Stopped" in _wait(hosts, "stops")
    assert time.monotonic() - began < 30
    assert hosts.processes("n1") == hosts.processes("n2") == hosts.processes("n3") == []


def test_a_host_that_is_killed_is_named(hosts: SshHosts) -> None:
    _start(hosts, "killed")
    hosts.kill("n3")
    output = _wait(hosts, "killed")
    hosts.start_server(hosts.machines[2])
    assert "host n3 was lost" in output
    assert "[host-lost]" in output
    hosts.wait_for_silence(15)


@pytest.mark.soak
def test_an_unplugged_host_ends_its_ranks(hosts: SshHosts) -> None:
    """It gets neither a message nor an error; the job fails, and names it."""
    _start(hosts, "unplugged", "--set", "host_timeout=15")
    hosts.machines[1].unplug()
    assert "host n2 was lost" in _wait(hosts, "unplugged")
    hosts.wait_for_silence(45)
    hosts.machines[1].plug()
