"""The programs of Slurm, and the Debian packages that they come with."""

from __future__ import annotations

import os
import shutil

DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "slurmstepd": "slurmd", "sbatch": "slurm-client"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core"}


class SlurmMissing(Exception):
    """A program is not installed; the message names the package."""


def program(name: str) -> str:
    """The path of a program: that of the real Slurm, where Debian's emulator has taken its name.

    Raises:
        SlurmMissing: it is not installed.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"])
    found = shutil.which(f"{name}-wlm", path=path) or shutil.which(name, path=path)
    if found is None:
        package = {**PACKAGES, **ACCOUNTING}.get(name, "slurm-client")
        raise SlurmMissing(f"{name} is not installed (Debian: {package})")
    return found


def find_programs(*, accounting: bool = False) -> None:
    """Raises SlurmMissing if a cluster cannot start here."""
    for name in [*PACKAGES, *(ACCOUNTING if accounting else ())]:
        program(name)
