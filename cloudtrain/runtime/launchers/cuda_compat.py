"""NVIDIA's compatibility libraries, with which CUDA runs on an older driver of a data-centre GPU.

NVIDIA's images have them in a folder that is not searched. Newer releases of its container toolkit put the folder on
the path themselves, others do not: see https://docs.nvidia.com/deploy/cuda-compatibility.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

FOLDER = Path("/usr/local/cuda/compat")
_NOT_SUPPORTED = re.compile(r"GeForce|TITAN")
"""Models on which CUDA fails with these libraries (error 804). Without them it runs on every driver for its major
version."""
_DRIVER_VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def compatibility_folder(folder: Path = FOLDER, root: Path = Path("/")) -> str | None:
    """The folder for ``LD_LIBRARY_PATH`` if its libraries are for a newer driver than this host's and its GPUs support
    them; otherwise None."""
    if any(_NOT_SUPPORTED.search(model) for model in _models(root)):
        return None
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


def _models(root: Path) -> list[str]:
    """The models of this host's GPUs, if the driver lists them."""
    found = []
    for path in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError):
            found += re.findall(r"^Model:\s*(.+)", path.read_text(errors="replace"), re.MULTILINE)
    return found


def _major(text: str) -> int:
    """The first part of the driver's version in ``text``: 580 of ``libcuda.so.580.95.05``; 0 if there is none."""
    match = re.search(r"\b(\d{3})\.\d+", text)
    return int(match[1]) if match else 0
