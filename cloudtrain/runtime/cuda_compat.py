"""NVIDIA's compatibility libraries, with which CUDA runs on an older driver of a data-centre GPU.

NVIDIA's images have them in a folder that is not searched. Newer releases of its container toolkit put the folder on
the path themselves, others do not: see https://docs.nvidia.com/deploy/cuda-compatibility.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path("/usr/local/cuda/compat")
_DRIVER_VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def compatibility_folder(folder: Path = FOLDER, root: Path = Path("/")) -> str | None:
    """The folder for ``LD_LIBRARY_PATH`` if its libraries are for a newer driver than this host's; otherwise None."""
    brought = [_major(path.name) for path in folder.glob("libcuda.so.*.*")]
    if not brought:
        return None
    for path in _DRIVER_VERSIONS:
        try:
            driver = _major((root / path.lstrip("/")).read_text())
        except OSError:
            continue
        return str(folder) if 0 < driver < max(brought) else None
    return None


def _major(text: str) -> int:
    """The first part of the driver's version in ``text``: 580 of ``libcuda.so.580.95.05``; 0 if there is none."""
    match = re.search(r"\b(\d{3})\.\d+", text)
    return int(match[1]) if match else 0
