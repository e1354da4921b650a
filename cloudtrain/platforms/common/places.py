"""The shares of jobs that run at the same time on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.contract.host import GPU_SHARE
from cloudtrain.contract.text import counted
from cloudtrain.errors import InvalidJob


def shares_of_machine(gpus: Sequence[str], jobs: int, per_host: int | None) -> int:
    """The number of shares into which some jobs divide this machine, which is their only host, and its GPUs.

    Raises InvalidJob if there are more jobs than shares, or more jobs than GPUs and ``per_host`` is None.
    """
    if per_host is not None and jobs > per_host:
        raise InvalidJob(
            f"parallel: {jobs} trials at the same time, and this machine, the only host, takes {per_host}",
            hint="Increase trials_per_host, or decrease parallel.",
        )
    if per_host is None and gpus and jobs > len(gpus):
        raise InvalidJob(
            f"parallel: {jobs} trials at the same time, and this machine has {counted(len(gpus), 'GPU')}",
            hint=f"Decrease parallel, or let trials share a GPU: trials_per_host {jobs}.",
        )
    return per_host or jobs


def with_share(fields: Mapping[str, Any], number: int, shares: int, port: int) -> Mapping[str, Any]:
    """The fields of the job that has the share ``number`` of the GPUs of its hosts.

    Args:
        port: the ``master_port`` of the job. Raises InvalidJob if it is set, because only one job can use it.
    """
    if shares == 1:
        return fields
    if port:
        raise InvalidJob(
            f"platform_options.master_port: {port} is one port for all trials that share a host",
            hint="Leave it out: each trial chooses a free one.",
        )
    environment = {**(fields.get("environment") or {}), GPU_SHARE: f"{number}/{shares}"}
    return {**fields, "environment": environment}
