"""A library in place of NVIDIA's management library, compiled from ``tests/data/nvml/stand_in.c``."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "data" / "nvml" / "stand_in.c"
ORDERS = "NVML_STAND_IN"
"""The variable that names the file of its orders: see its source."""


def compile_stand_in(folder: Path) -> Path:
    """The library, by the name under which programs load it. Needs a C compiler."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, SOURCE], check=True)
    return library
