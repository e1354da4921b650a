"""AWS's Elastic Fabric Adapter (EFA): the variables that libfabric and NCCL need, by instance type.

As in ``torch_distributed.py`` and ``mpi.py`` of https://github.com/aws/sagemaker-training-toolkit. Newer instance types
are those for which EC2's DescribeInstanceTypes says ``EfaSupported``.
"""

from __future__ import annotations

import re

_SIZES = {
    "g4dn": (8, 12, 16),
    "g5": (8, 12, 16, 24, 48),
    "g6": (8, 12, 16, 24, 48),
    "g6e": (8, 12, 16, 24, 48),
    "g7": (8, 12, 24, 48),
    "g7e": (8, 12, 24, 48),
    "gr6": (8,),
    "p3dn": (24,),
    "p4d": (24,),
    "p4de": (24,),
    "p5": (4, 48),
    "p5e": (48,),
    "p5en": (48,),
    "p6-b200": (48,),
    "p6-b300": (48,),
    "p6e-gb200": (36,),
    "trn1": (32,),
    "trn1n": (32,),
    "trn2": (3, 48),
    "trn2u": (48,),
}
"""The instances with EFA: families, and sizes in ``xlarge``."""

_WITH_RDMA = (
    "p4d",
    "p4de",
    "p5",
    "p5e",
    "p5en",
    "p6-b200",
    "p6-b300",
    "p6e-gb200",
    "trn1",
    "trn1n",
    "trn2",
    "trn2u",
)
"""Families whose adapter reads and writes the memory of the accelerators. Older libfabric has to be asked to."""


def efa_variables(instance_type: str | None) -> dict[str, str]:
    """Defaults for the ranks on a host of this instance type, such as ``ml.p4d.24xlarge``; none without EFA."""
    match = re.fullmatch(r"(?:ml\.)?(?P<family>[a-z0-9-]+)\.(?P<size>\d+)xlarge", instance_type or "")
    if not match or int(match["size"]) not in _SIZES.get(match["family"], ()):
        return {}
    variables = {
        "FI_PROVIDER": "efa",
        "NCCL_PROTO": "simple",  # the other protocols rely on data that arrives in order
    }
    if match["family"] in _WITH_RDMA:
        variables["FI_EFA_USE_DEVICE_RDMA"] = "1"
        variables["RDMAV_FORK_SAFE"] = "1"  # the workers of a DataLoader are forked
    return variables
