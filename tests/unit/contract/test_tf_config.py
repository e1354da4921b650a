"""``TF_CONFIG`` of TensorFlow's strategies for several machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudtrain.contract.frameworks import MIRRORED, PARAMETER_SERVER, WorldPorts, tf_config

WORKERS, SERVERS = ["a:1", "b:2", "c:3"], ["a:4", "b:5", "c:6"]


def config(launcher: str, host: int, **options: Any) -> Any:
    return json.loads(tf_config(launcher, host, WORKERS, SERVERS, **options))


@pytest.mark.parametrize("host", range(3))
def test_every_host_is_a_worker_of_the_mirrored_strategy(host: int) -> None:
    """As ``_build_tf_config_for_mwms`` of AWS's toolkit returns it, but for the ports."""
    expected = {
        "cluster": {"worker": WORKERS},
        "environment": "cloud",
        "task": {"index": host, "type": "worker"},
    }
    assert config(MIRRORED, host) == expected


@pytest.mark.parametrize(("host", "task"), [(0, ("chief", 0)), (1, ("worker", 0)), (2, ("worker", 1))])
def test_every_host_has_a_parameter_server(host: int, task: tuple[str, int]) -> None:
    """As ``_build_tf_config_for_ps`` of AWS's toolkit, but for the ports, and ``master`` of TensorFlow 1."""
    cluster = {"chief": ["a:1"], "ps": SERVERS, "worker": ["b:2", "c:3"]}
    script, server = config(PARAMETER_SERVER, host), config(PARAMETER_SERVER, host, is_server=True)
    assert script == {"cluster": cluster, "environment": "cloud", "task": {"type": task[0], "index": task[1]}}
    assert server == {"cluster": cluster, "environment": "cloud", "task": {"type": "ps", "index": host}}


def test_a_single_host_is_one_worker_and_has_no_parameter_server() -> None:
    alone = json.loads(tf_config(MIRRORED, 0, ["a:1"], ["a:2"]))
    assert alone["cluster"] == {"worker": ["a:1"]}
    assert tf_config(PARAMETER_SERVER, 0, ["a:1"], ["a:2"]) == ""


def test_the_ports_of_all_hosts_are_in_their_order() -> None:
    message = {"ports": {"coordinator": 1, "tracker": 2, "agent": 3}, "tasks": {"b": [6, 7], "a": [4, 5]}}
    assert WorldPorts.from_message(message, ["a", "b"]) == WorldPorts(1, 2, 3, ((4, 5), (6, 7)))
    assert WorldPorts.from_message({"ports": None}, ["a", "b"]) == WorldPorts()
