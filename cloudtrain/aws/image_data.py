"""The known facts about AWS's images: accounts, versions, suffixes, registries, and the instances that choose one."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from cloudtrain.spec import TrainingJob

DATA = Path(__file__).with_name("images.json")
"""The accounts by region, the versions, and the suffixes of some tags. The file names its date and source."""


@cache
def image_data(path: Path = DATA) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def numbers(version: str) -> tuple[float, ...]:
    """``"1.4.1"`` as ``(1, 4, 1)``. A short ``"1.4"`` is greater than all of its patch versions."""
    parts: list[float] = [int(part) for part in re.findall(r"\d+", version)]
    return (*parts, float("inf")) if len(parts) < 3 else tuple(parts)


def is_alias(version: str, full: str) -> bool:
    """Whether ``version`` is ``full`` or a prefix of it, as ``4.49`` is of ``4.49.0``."""
    return full == version or full.startswith(f"{version}.")


_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "eusc-": "amazonaws.eu",
}
"""The domains of AWS's partitions, by the prefix of their regions."""


ECR = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr(?P<fips>-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<domain>[a-z0-9-]+(?:\.[a-z0-9-]+)+)/"
    r"(?P<repository>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>sha256:[0-9a-f]+))?"
)
"""The URI of an image in ECR."""


def registry(account: str, region: str) -> str:
    """The host of an account's images in ECR."""
    domain = next((name for start, name in _DOMAINS.items() if region.startswith(start)), "amazonaws.com")
    return f"{account}.dkr.ecr.{region}.{domain}"


def image_instance_type(job: TrainingJob) -> str:
    """The instance type that selects the image: the first with GPUs, otherwise the first."""
    types = job.instance_types or [""]
    return next((kind for kind in types if re.match("ml[._][gp]", kind)), types[0])


def instance_family(instance_type: str) -> str:
    """The family of an instance type: ``p4d`` for ``ml.p4d.24xlarge``; empty for any other text."""
    match = re.fullmatch(r"ml[._]([a-z\d\-]+)\.?\w*", instance_type)
    return match[1] if match else ""
