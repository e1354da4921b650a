"""Chooses the ``horovod`` that ranks import, and does the work of ``horovodrun`` for the real Horovod.

The ranks of the real Horovod (0.28.1) on Gloo find one another through an HTTP server that comes with Horovod
(``horovod.runner.http``). The leader runs it in the script's interpreter. If Horovod was built for MPI only, ``mpirun``
starts the ranks instead.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import Launcher, RankSlot
from cloudtrain.contract.rank import HOROVODRUN
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.runtime.parent_death import RUNTIME_PID

START_SECONDS = 10.0
"""Time limit for the start of the rendezvous server, which usually takes 0.1 s."""

_SERVER_MODULE = "cloudtrain.runtime.launchers.horovod_rendezvous"
_NEUTRAL_FOLDER = "/"
"""The working folder for Python's ``-c`` and ``-m``. In the code folder, a ``json.py`` would shadow the module."""

_FIND = """
import importlib.util, json
spec = importlib.util.find_spec("horovod")
print(json.dumps(list(spec.submodule_search_locations or ()) if spec else []))
"""


@dataclass(frozen=True)
class HorovodChoice:
    """Rank 0's host chooses for all hosts. Two implementations in one job would wait for each other forever."""

    alias: bool = False
    """Whether ``import horovod`` imports cloudtrain's implementation."""
    controller: str = ""
    """The controller of the real Horovod, ``gloo`` or ``mpi``, if the ranks are launched for it; otherwise empty."""
    port: int = 0
    """The port of the rendezvous server on rank 0's host, for ``gloo``."""

    @classmethod
    def make(cls, launcher: Launcher, python: str, environ: Mapping[str, str]) -> HorovodChoice:
        """Choose for an interpreter that has the job's requirements.

        Raises:
            InvalidJob: the job requires the real Horovod, which is not installed.
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


def find_horovod(python: str, environ: Mapping[str, str]) -> str:
    """The controller of this interpreter's real Horovod: "gloo", "mpi" (built without Gloo), or "" (not installed).

    ``horovod.torch.gloo_built()`` would answer this too, but only after importing the framework, which takes seconds.
    This function searches Horovod's libraries instead: only the code for Gloo contains the rendezvous variable's name.
    """
    found = subprocess.run(
        [python, "-c", _FIND], cwd=_NEUTRAL_FOLDER, env=dict(environ), stdout=subprocess.PIPE, check=True
    )
    libraries = [
        library for folder in json.loads(found.stdout) for library in Path(folder).glob("*/mpi_lib*.so")
    ]
    if any(_mentions(library, b"HOROVOD_GLOO_RENDEZVOUS_ADDR") for library in libraries):
        return "gloo"
    return "mpi" if libraries else ""


def _mentions(library: Path, text: bytes) -> bool:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def start_rendezvous(
    python: str, hosts: Sequence[str], ranks_per_host: int, environment: Mapping[str, str], *, loopback: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """Start Horovod's rendezvous server; returns its process and its port.

    The process ends when this one ends.

    Args:
        python: the interpreter that has the real Horovod.
        environment: the environment of the job, whose PYTHONPATH includes cloudtrain.
        loopback: whether all hosts are on this machine. Otherwise, it listens on all interfaces.

    Raises:
        PlatformError: the server does not start.
    """
    plan = ",".join(f"{host}:{ranks_per_host}" for host in hosts)
    read_end, write_end = os.pipe()
    try:
        server = subprocess.Popen(
            [python, "-m", _SERVER_MODULE, plan, str(int(loopback)), str(write_end)],
            cwd=_NEUTRAL_FOLDER,
            env={
                **environment,
                RUNTIME_PID: str(os.getpid()),
                "PYTHONUNBUFFERED": "1",
            },  # so that the traceback follows all other output
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(write_end,),
        )
    finally:
        os.close(write_end)
    with open(read_end, "rb") as file, server.stdout as output:  # type: ignore[union-attr]
        in_time = select.select([file], [], [], START_SECONDS)[0]
        port = file.read() if in_time else b""
        if port:
            return server, int(port)
        server.kill()
        server.wait()
        message = output.read() if in_time else f"no answer within {START_SECONDS:.0f} s".encode()
    why = message.decode(errors="backslashreplace").strip().splitlines()[-1:]  # the error of a traceback
    raise PlatformError(
        f"Horovod's rendezvous server does not start: {''.join(why) or 'it exited without a message'}",
        hint="Check that horovodrun works in this environment."
        " Or set distribution.horovod.implementation to cloudtrain.",
    )


def horovod_environment(
    slot: RankSlot, host: str, rendezvous: tuple[str, int], interface: str
) -> dict[str, str]:
    """The variables that ``horovodrun --gloo`` sets for a rank (``horovod/runner/gloo_run.py``).

    Args:
        host: the name of the rank's host.
        rendezvous: address and port of the rendezvous server.
        interface: the network interface for traffic between ranks.
    """
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": rendezvous[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(rendezvous[1]),
        "HOROVOD_GLOO_IFACE": interface,
        "HOROVOD_HOSTNAME": host,
        **slot.variables(HOROVODRUN),
    }
