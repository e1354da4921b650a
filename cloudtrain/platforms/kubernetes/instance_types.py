"""The nodes and the GPUs that an instance type of a cloud means."""

from __future__ import annotations

import re
from typing import Any

NODE_LABEL = "node.kubernetes.io/instance-type"
"""The label that the clouds' node controllers set on every node."""

_G_SIZES = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1}
GPUS: dict[str, dict[str, int]] = {
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "g4dn": {**_G_SIZES, "metal": 8},
    "g5": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g5g": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
    "g6": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g6e": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g7": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "g7e": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "gr6": {"4xlarge": 1, "8xlarge": 1},
}
"""The NVIDIA GPUs of EC2's instance types, by family and size (DescribeInstanceTypes, ``GpuInfo``)."""

_EC2 = re.compile(r"(?P<family>(?P<letters>[a-z]+)[0-9]+[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")
_GOOGLE_GPUS = re.compile(r"a[2-9]-[a-z]+gpu-(?P<gpus>[0-9]+)g")
_GOOGLE = re.compile(r"(e2|n1|n2d?|n4|c2d?|c3d?|c4a?|t2[da]|m[1-4])-[a-z]+-[0-9]+[a-z0-9-]*")
_CPU_FAMILIES = ("a", "c", "d", "h", "hpc", "i", "im", "is", "m", "mac", "r", "t", "u", "x", "z")
"""Families of EC2 without accelerators."""


def known_type(name: str) -> dict[str, Any] | None:
    """The options that an instance type means; None if it is not known here.

    >>> known_type("ml.p4d.24xlarge")
    {'node_selector': {'node.kubernetes.io/instance-type': 'p4d.24xlarge'}, 'gpus': 8}
    """
    name = name.removeprefix("ml.")
    gpus = _gpus(name)
    if gpus is None:
        return None
    options: dict[str, Any] = {"node_selector": {NODE_LABEL: name}}
    return {**options, "gpus": gpus} if gpus else options


def _gpus(name: str) -> int | None:
    """The GPUs of a type; None if it is not known here."""
    google = _GOOGLE_GPUS.fullmatch(name)
    if google:
        return int(google["gpus"])
    if _GOOGLE.fullmatch(name):
        return 0
    match = _EC2.fullmatch(name)
    if not match:
        return None
    if match["family"] in GPUS:
        return GPUS[match["family"]].get(match["size"])
    return 0 if match["letters"] in _CPU_FAMILIES else None
