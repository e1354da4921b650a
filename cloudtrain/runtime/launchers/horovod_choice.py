"""Chooses the ``horovod`` that ranks import: the real one, or cloudtrain's, which has the same name and API."""

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
from cloudtrain.runtime.launchers.horovod import find_horovod


@dataclass(frozen=True)
class HorovodChoice:
    """The choice of rank 0's host for all hosts. Two implementations in one job would wait for each other forever."""

    alias: bool = False
    """Whether ``import horovod`` imports cloudtrain's."""
    controller: str = ""
    """The controller of the real Horovod, if the ranks are launched for it: ``gloo``, ``mpi``."""
    port: int = 0
    """The port of the rendezvous server on rank 0's host, for ``gloo``."""

    @classmethod
    def make(cls, launcher: Launcher, python: str, environ: Mapping[str, str]) -> HorovodChoice:
        """Choose for an interpreter that has the job's requirements.

        Raises:
            InvalidJob: the job requires the real Horovod, and it is not installed.
        """
        if not launcher.is_horovod:
            return cls(alias=not _is_installed(python, environ))
        controller = "" if launcher.implementation == "cloudtrain" else find_horovod(python, environ)
        if launcher.implementation == "horovod" and not controller:
            raise InvalidJob(
                f"distribution.horovod: Horovod is not installed for {python}",
                hint="Add horovod to requirements.txt, or set distribution.horovod.implementation to cloudtrain.",
            )
        return cls(alias=not controller, controller=controller)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HorovodChoice:
        return cls(values["alias"], values["controller"], values["port"])


def _is_installed(python: str, environ: Mapping[str, str]) -> bool:
    if python != sys.executable:
        return bool(find_horovod(python, environ))
    # without a subprocess: this runs in every job
    more = environ.get("PYTHONPATH", "").split(os.pathsep)
    return bool(importlib.util.find_spec("horovod") or PathFinder.find_spec("horovod", more))
