"""``TF_CONFIG``, from which TensorFlow's strategies for several machines learn their cluster.

The layouts are those of AWS's images (sagemaker-tensorflow-training 20.5.0), with one difference: its ``master`` is
``chief`` here, the name that TensorFlow 2 accepts. Each host has one process that runs the script.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

VARIABLE = "TF_CONFIG"
MIRRORED = "multi_worker_mirrored"
PARAMETER_SERVER = "parameter_server"
LAUNCHERS = (MIRRORED, PARAMETER_SERVER)
"""The launchers whose ranks have the variable. In other jobs, TensorFlow's Estimators would wait for a cluster."""


def tf_config(
    launcher: str, host_rank: int, workers: Sequence[str], servers: Sequence[str], *, is_server: bool = False
) -> str:
    """The value for the script of a host, or for its parameter server. Empty if the job has no cluster.

    Args:
        launcher: one of `LAUNCHERS`.
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
