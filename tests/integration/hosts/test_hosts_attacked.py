"""Machines on the network of a job that do not know its secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacker import attack, connections, peak_memory
from host_network import Machine
from hosts_job import LAUNCHES, HostsJob, StartJob
from linked_hosts import linked

LEADER = "10.77.0.1:7778"
RANK = """
    import os, time
    print("rank", os.environ["RANK"], "secret", "CLOUDTRAIN_SECRET" in os.environ, flush=True)
    time.sleep(3)
"""
RANK_UNTIL = """
    import os, time
    print("started", flush=True)
    while not os.path.exists("{file}"):
        time.sleep(0.05)
"""


@pytest.fixture
def three_hosts(tmp_path: Path) -> Iterator[list[Machine]]:
    with linked(3, tmp_path) as machines:
        yield machines


def test_an_impostor_that_connects_first_receives_nothing(three_hosts: list[Machine], tmp_path: Path) -> None:
    *hosts, stranger = three_hosts
    with attack(stranger, tmp_path, "impostor.py", LEADER) as log:
        job = HostsJob(hosts, tmp_path, RANK, LAUNCHES["processes"])
        try:
            assert job.wait() == [0, 0], job.output()
        finally:
            job.kill()
        said = log.read_text()
    assert said.count("tried") > 3
    assert set(said.splitlines()) <= {"tried", "received b''"}
    assert not (tmp_path / "tmp-n2" / "taken").exists()
    assert job.output().count("secret False") == 4


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_crowd_delays_nothing(three_hosts: list[Machine], tmp_path: Path, count: int) -> None:
    """The runtimes may have 1,024 open files."""
    *hosts, stranger = three_hosts
    over = tmp_path / "over"
    with attack(stranger, tmp_path, "crowd.py", LEADER, str(count)) as log:
        job = HostsJob(hosts, tmp_path, RANK_UNTIL.format(file=over), LAUNCHES["processes"])
        try:
            job.wait_for("started", 4)
            deadline = time.monotonic() + 200
            while connections(log) <= count:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert peak_memory(job.part("n1").program) < 100
            over.touch()
            assert job.wait() == [0, 0], job.output()
        finally:
            job.kill()
    assert '"event": "refused"' in (job.part("n1").paths.output / "events.jsonl").read_text()


def test_traffic_between_hosts_cannot_be_read(two_hosts: list[Machine], tmp_path: Path) -> None:
    """The commands of mpirun's daemons, too, pass the network between the hosts."""
    seen = tmp_path / "seen"
    with attack(two_hosts[1], tmp_path, "sniffer.py", "7778", str(seen)) as log:
        while "ready" not in log.read_text():
            time.sleep(0.05)
        job = HostsJob(two_hosts, tmp_path, RANK, LAUNCHES["mpirun-5"])
        try:
            assert job.wait() == [0, 0], job.output()
        finally:
            job.kill()
    traffic = seen.read_bytes()
    assert b"ctlink1" in traffic
    assert len(traffic) > 2000
    assert not [word for word in (b"type", b"ready", b"prted", b"command") if word in traffic]


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("another secret, which is long enough", "does not know the secret of this job"),
        ("", "the secret of this job, which its 2 hosts share, is missing"),
        ("too short", "is shorter than 32 characters"),
    ],
)
def test_a_host_without_the_secret_has_a_hint(start_job: StartJob, secret: str, message: str) -> None:
    job = start_job(RANK, LAUNCHES["processes"], of={"n2": {"CLOUDTRAIN_SECRET": secret}})
    part = job.part("n2")
    assert part.program.wait(60) == 1
    report = part.failure()
    assert message in report.message
    assert "CLOUDTRAIN_SECRET" in report.hint
    assert part.output().count(message) == 1, part.output()
    assert "Traceback" not in part.output()
    assert job.part("n1").program.running
