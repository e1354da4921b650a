"""Whose ``horovod`` the ranks import: the real one, or cloudtrain's, which has the same name and API."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

from cloudtrain.contract import Launcher
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.horovod import find_horovod


@dataclass(frozen=True)
class HorovodChoice:
    """What the leader has chosen for all hosts: with two implementations in one job, each waits for the other."""

    alias: bool = False
    """Whether ``import horovod`` gives cloudtrain's."""
    controller: str = ""
    """What the real one runs on, where it is to be launched: ``gloo``, ``mpi``."""
    port: int = 0
    """Of the rendezvous server on the leader, for ``gloo``."""

    @classmethod
    def make(cls, launcher: Launcher, python: str, environ: Mapping[str, str]) -> HorovodChoice:
        """For a Python that has the job's requirements.

        Raises:
            InvalidJob: the real Horovod is asked for, and not there.
        """
        if launcher.name != "horovod":
            return cls(alias=not _is_installed(python, environ))
        controller = "" if launcher.implementation == "cloudtrain" else find_horovod(python, environ)
        if launcher.implementation == "horovod" and not controller:
            raise InvalidJob(
                f"distribution.horovod: Horovod is not installed for {python}",
                hint="Put horovod into requirements.txt, or use the implementation cloudtrain.",
            )
        return cls(alias=not controller, controller=controller)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HorovodChoice:
        return cls(values["alias"], values["controller"], values["port"])


def _is_installed(python: str, environ: Mapping[str, str]) -> bool:
    if python != sys.executable:
        return bool(find_horovod(python, environ))
    # no process is started for this: it is asked for every job
    more = environ.get("PYTHONPATH", "").split(os.pathsep)
    return bool(importlib.util.find_spec("horovod") or PathFinder.find_spec("horovod", more))
