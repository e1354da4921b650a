"""The variables of other frameworks, and the ports that they name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.contract.frameworks import FRAMEWORK_VARIABLES, WorldPorts, framework_variables, without_set
from cloudtrain.runtime import ports
from cloudtrain.runtime.ports import FIRST_PORT, PORT_COUNT, free_port, hold

PORTS = WorldPorts(coordinator=1, tracker=2, agent=3)


def test_a_rank_of_two_hosts() -> None:
    slot = RankSlot.on_host(1, 2, 4)[2]
    assert framework_variables(slot, "algo-1", PORTS, gpus=0) == {
        "NODE_RANK": "1",
        "JAX_COORDINATOR_ADDRESS": "algo-1:1",
        "JAX_NUM_PROCESSES": "8",
        "JAX_PROCESS_ID": "6",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": "algo-1:1",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "8",
        "KERAS_DISTRIBUTION_PROCESS_ID": "6",
        "DMLC_TRACKER_URI": "algo-1",
        "DMLC_TRACKER_PORT": "2",
        "DMLC_TASK_ID": "6",
        "DMLC_NUM_WORKER": "8",
    }


def test_what_the_user_has_set_stays() -> None:
    variables = {"JAX_PROCESS_ID": "0", "TF_CONFIG": "{}"}
    assert without_set(variables, {"TF_CONFIG": ""}) == {"JAX_PROCESS_ID": "0"}


def test_on_one_machine_the_coordinator_of_jax_listens_on_loopback() -> None:
    found = framework_variables(RankSlot(0, 0, 2, 1, 0, 2), "127.0.0.1", PORTS, gpus=0)
    assert found["JAX_COORDINATOR_BIND_ADDRESS"] == found["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:1"


def test_an_address_of_ipv6_has_brackets() -> None:
    found = framework_variables(RankSlot(0, 0, 2, 1, 0, 2), "fd00::1", PORTS, gpus=0)
    assert found["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:1"
    assert found["DMLC_TRACKER_URI"] == "fd00::1"


@pytest.mark.parametrize(
    ("gpus", "ranks", "devices"),
    [
        (8, 1, [None]),
        (0, 2, [None, None]),
        (2, 2, ["0", "1"]),
        (8, 2, ["0,1,2,3", "4,5,6,7"]),
        (4, 3, ["0", "1", "2"]),
        (1, 3, ["0", "0", "0"]),
        (2, 3, ["0", "1", "0"]),
    ],
)
def test_ranks_share_the_gpus_of_their_host(gpus: int, ranks: int, devices: list[str | None]) -> None:
    slots = RankSlot.on_host(1, 2, ranks)
    found = [framework_variables(slot, "a", PORTS, gpus).get("JAX_LOCAL_DEVICE_IDS") for slot in slots]
    assert found == devices


def test_every_name_is_listed() -> None:
    assert set(framework_variables(RankSlot(0, 0, 2, 2, 0, 1), "127.0.0.1", PORTS, 2)) == set(
        FRAMEWORK_VARIABLES
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no abstract Unix sockets")
def test_no_other_process_chooses_the_same_port() -> None:
    port = free_port()
    assert FIRST_PORT <= port < FIRST_PORT + PORT_COUNT
    assert not hold(port)
    claim = f"from cloudtrain.runtime.ports import hold; print(hold({port}), hold({port}))"
    other = subprocess.run([sys.executable, "-c", claim], capture_output=True, text=True, check=True)
    assert other.stdout.split() == ["False", "False"]
    free = "from cloudtrain.runtime.ports import free_port, hold; port = free_port(); print(port, hold(port))"
    ended = subprocess.run([sys.executable, "-c", free], capture_output=True, text=True, check=True)
    assert hold(int(ended.stdout.split()[0]))  # a claim ends with its process
    names = [line for line in Path("/proc/net/unix").read_text().splitlines() if "@cloudtrain-port-" in line]
    assert names
    assert not [line for line in names if line.endswith(str(port))], "another user could take it first"


def test_ports_that_another_user_has_taken_do_not_keep_a_job_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setattr(ports, "PORT_COUNT", 1)
        monkeypatch.setattr(ports, "FIRST_PORT", taken.getsockname()[1])
        assert ports.free_port() != taken.getsockname()[1]


def test_without_its_own_folder_a_process_claims_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / f"cloudtrain-{os.getuid()}").write_text("taken by another user")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ports, "_key", cache(ports._key.__wrapped__))
    assert not hold(free_port())


def test_a_file_system_without_hard_links_keeps_no_unfinished_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: object) -> None:
        raise PermissionError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "link", refuse)
    assert len(ports._key.__wrapped__()) == ports.KEY_BYTES
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
