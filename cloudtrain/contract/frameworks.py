"""The variables from which TensorFlow, JAX, Keras, XGBoost, Lightning and others learn the world of a job.

Every launcher sets them for the ranks of a world. None of them affects a script that does not read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields
from cloudtrain.contract.rank import RankSlot

HOSTFILE = "CLOUDTRAIN_HOSTFILE"
"""The variable that names the hostfile."""

FRAMEWORK_VARIABLES = (
    "NODE_RANK",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_COORDINATOR_BIND_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JAX_LOCAL_DEVICE_IDS",
    "KERAS_DISTRIBUTION_JOB_ADDRESSES",
    "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "KERAS_DISTRIBUTION_PROCESS_ID",
    "DMLC_TRACKER_URI",
    "DMLC_TRACKER_PORT",
    "DMLC_TASK_ID",
    "DMLC_NUM_WORKER",
)
"""The names of all variables of `framework_variables`."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class WorldPorts:
    """Ports on the host of rank 0, which are free when it chooses them, and which it sends to all hosts."""

    coordinator: int = 0
    """For JAX's coordinator, which Keras uses too."""
    tracker: int = 0
    """For XGBoost's tracker."""
    agent: int = 0
    """For the servers of the agent launcher, such as Ray's."""
    tasks: tuple[tuple[int, int], ...] = ()
    """For TensorFlow: a port for the script and one for the parameter server, on each host of the world."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any], hosts: Sequence[str]) -> WorldPorts:
        """From the leader's message. Raises ValueError, which names the port.

        Args:
            hosts: the hosts of the world.
        """
        own = Fields(message.get("ports") or {}, "ports")
        tasks = Fields(message.get("tasks") or {}, "tasks")
        pairs = [[int(port) for port in tasks.items(host)] for host in hosts] if message.get("tasks") else []
        return cls(
            **{name: own.integer(name, 0, most=65535) for name in SHARED_PORTS},
            tasks=tuple((worker, server) for worker, server in pairs),
        )


SHARED_PORTS = ("coordinator", "tracker", "agent")
"""The fields of `WorldPorts` that the host of rank 0 chooses."""


def framework_variables(slot: RankSlot, master_addr: str, ports: WorldPorts, gpus: int) -> dict[str, str]:
    """The variables of one rank.

    Args:
        master_addr: the address of rank 0.
        gpus: the number of GPUs of the host. Several ranks of a host share them evenly; a single one sees all.
    """
    coordinator = address(master_addr, ports.coordinator)
    process = {"NUM_PROCESSES": slot.world_size, "PROCESS_ID": slot.rank}
    values: dict[str, Any] = {
        "NODE_RANK": slot.host_rank,
        "JAX_COORDINATOR_ADDRESS": coordinator,
        **{f"JAX_{name}": value for name, value in process.items()},
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
        **{f"KERAS_DISTRIBUTION_{name}": value for name, value in process.items()},
        "DMLC_TRACKER_URI": master_addr,
        "DMLC_TRACKER_PORT": ports.tracker,
        "DMLC_TASK_ID": slot.rank,
        "DMLC_NUM_WORKER": slot.world_size,
    }
    if master_addr == LOOPBACK:
        values["JAX_COORDINATOR_BIND_ADDRESS"] = coordinator  # by default, it listens on all interfaces
    if gpus and slot.local_size > 1:
        share = max(1, gpus // slot.local_size)
        first = slot.local_rank * share % gpus
        values["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(first, first + share)))
    return {name: str(value) for name, value in values.items()}


def without_set(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those that the user has set."""
    return {name: value for name, value in variables.items() if name not in environ}


def hostfile(hosts: tuple[str, ...], slots: int) -> str:
    """The hosts of the world and their numbers of ranks, in the format of Open MPI and DeepSpeed.

    >>> hostfile(("algo-1", "algo-2"), 8)
    'algo-1 slots=8\\nalgo-2 slots=8\\n'
    """
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def address(host: str, port: int) -> str:
    """``host:port``, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


TF_CONFIG = "TF_CONFIG"
MIRRORED = "multi_worker_mirrored"
PARAMETER_SERVER = "parameter_server"
TENSORFLOW_LAUNCHERS = (MIRRORED, PARAMETER_SERVER)
"""The launchers that set ``TF_CONFIG``. In other jobs, it would make TensorFlow's Estimators wait for a cluster."""


def tf_config(
    launcher: str, host_rank: int, workers: Sequence[str], servers: Sequence[str], *, is_server: bool = False
) -> str:
    """The value of ``TF_CONFIG`` for the script of a host, or for its parameter server. Empty without a cluster.

    Args:
        launcher: one of `TENSORFLOW_LAUNCHERS`.
        workers: ``host:port`` of the script of each host.
        servers: ``host:port`` of the parameter server of each host. With a single host, there is none.
        is_server: whether the value is for the parameter server.
    """
    cluster: dict[str, list[str]]
    task: dict[str, Any]
    if launcher == MIRRORED:
        cluster, task = {"worker": list(workers)}, {"index": host_rank, "type": "worker"}
    elif len(workers) == 1:
        return ""
    else:
        cluster = {"chief": list(workers[:1]), "ps": list(servers), "worker": list(workers[1:])}
        if is_server:
            task = {"index": host_rank, "type": "ps"}
        elif host_rank == 0:
            task = {"index": 0, "type": "chief"}
        else:
            task = {"index": host_rank - 1, "type": "worker"}
    return json.dumps({"cluster": cluster, "environment": "cloud", "task": task})
