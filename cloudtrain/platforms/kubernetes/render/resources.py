"""The resources that the container of a host asks for."""

from __future__ import annotations

import re
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.options import KubernetesOptions

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")


def resources(options: KubernetesOptions, *, has_ranks: bool = True) -> dict[str, Any]:
    """The container's ``resources``; empty if the job asks for none. Raises InvalidJob.

    Requests are limits, too: a host that uses more memory is the one that ends, ranks start as many threads as they
    have processors, and with both, the node evicts other pods first and may pin the processors.

    Args:
        has_ranks: false for the launcher of an MPIJob, which needs no devices.
    """
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if options.cpu is not None:
        requests["cpu"] = limits["cpu"] = quantity("cpu", options.cpu)
    if options.memory is not None:
        requests["memory"] = limits["memory"] = quantity("memory", options.memory)
    if options.disk is not None:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = quantity("disk", options.disk)
    if has_ranks:
        devices = {options.gpu_resource: options.gpus} if options.gpus else {}
        for name, amount in {**devices, **options.resources}.items():
            requests[name] = limits[name] = quantity(f"resources.{name}", amount)
    if any(name.startswith("hugepages-") for name in limits) and not {"cpu", "memory"} & set(requests):
        raise InvalidJob(
            "platform_options.resources: Kubernetes gives huge pages only with cpu or memory",
            hint="Add platform_options.memory, for example 64Gi.",
        )
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def quantity(field: str, value: str | float) -> str:
    """An amount in Kubernetes' notation. Raises InvalidJob."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if not _QUANTITY.fullmatch(text):
        raise InvalidJob(
            f"platform_options.{field}: {text!r} is not an amount of Kubernetes",
            hint="For example 4, 500m, 32G or 32Gi: without a space, and without B.",
        )
    return text
