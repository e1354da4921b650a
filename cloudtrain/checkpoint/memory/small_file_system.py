"""Advice for a file system that is too small for copies in memory, depending on where the job runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cloudtrain.checkpoint.memory.files import VARIABLE

CONTAINERS = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into their containers."""


def advice_for(folder: Path, nbytes: int, environ: Mapping[str, str]) -> str:
    """How to get space for ``nbytes`` more in ``folder``; empty if its file system is not the limit. Raises OSError."""
    status = os.statvfs(folder)
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    if not total or free - total // 5 >= nbytes:
        return ""
    return f"{folder.parent} has {total >> 20} MB: {_enlarge(environ, any(map(os.path.exists, CONTAINERS)))}"


def _enlarge(environ: Mapping[str, str], in_container: bool) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        how = (
            "in platform_options, omit shm_size or raise it. In a pod that cloudtrain has not made, mount an "
            "emptyDir of medium Memory there"
        )
    elif in_container:
        how = "raise shm_size in platform_options, or the --shm-size of docker run or podman run"
    else:
        how = (
            "the administrator of the machine can enlarge it, and Apptainer, Enroot and Singularity share it"
        )
    return f"{how}. Or set {VARIABLE} in the job's environment to another file system in memory"
