"""The known facts about AWS's images: accounts, versions, suffixes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("images.json")
"""The accounts by region, the versions, and the suffixes of some tags. The file names its date and source."""


@cache
def image_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def numbers(version: str) -> tuple[float, ...]:
    """``"1.4.1"`` as ``(1, 4, 1)``. A short ``"1.4"`` is greater than all of its patch versions."""
    parts: list[float] = [int(part) for part in re.findall(r"\d+", version)]
    return (*parts, float("inf")) if len(parts) < 3 else tuple(parts)


def is_alias(version: str, full: str) -> bool:
    """Whether ``version`` is ``full`` or a prefix of it, as ``4.49`` is of ``4.49.0``."""
    return full == version or full.startswith(f"{version}.")
