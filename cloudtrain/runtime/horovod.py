"""What the real Horovod (0.28.1) needs beside the ranks, where it runs on Gloo: what ``horovodrun`` would do.

Its ranks find each other through an HTTP server that Horovod itself brings (``horovod.runner.http``): the leader
runs it in the job's own Python. Where Horovod was built for MPI only, ``mpirun`` does all of this.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain.contract import RankSlot
from cloudtrain.contract.launcher_env import HOROVODRUN
from cloudtrain.errors import PlatformError

START_SECONDS = 10.0
"""How long the rendezvous server may take to start; it takes a tenth of a second."""

_SERVER_MODULE = "cloudtrain.runtime.horovod_rendezvous"
_ELSEWHERE = "/"
"""Python's ``-c`` and ``-m`` look into the working folder first, where the user may have a ``json.py``."""

_FIND = """
import importlib.util, json
spec = importlib.util.find_spec("horovod")
print(json.dumps(list(spec.submodule_search_locations or ()) if spec else []))
"""


def find_horovod(python: str, environ: Mapping[str, str]) -> str:
    """What the real Horovod of this interpreter runs on: "gloo", "mpi" (built without Gloo), "" (there is none).

    Horovod would tell itself (``horovod.torch.gloo_built()``), after an import of the framework that takes
    seconds. The libraries it was built into hold the answer too: only Gloo's part reads where the rendezvous is.
    """
    found = subprocess.run(
        [python, "-c", _FIND], cwd=_ELSEWHERE, env=dict(environ), stdout=subprocess.PIPE, check=True
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
    python: str, hosts: Sequence[str], ranks_per_host: int, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start Horovod's rendezvous server; its process, which ends with this one, and its port, on all interfaces.

    Args:
        python: the interpreter that has the real Horovod.
        environment: of the job; its PYTHONPATH leads to cloudtrain.

    Raises:
        PlatformError: it does not start.
    """
    plan = ",".join(f"{host}:{ranks_per_host}" for host in hosts)
    answer, its_end = os.pipe()
    try:
        server = subprocess.Popen(
            [python, "-m", _SERVER_MODULE, plan, str(its_end)],
            cwd=_ELSEWHERE,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(its_end,),
        )
    finally:
        os.close(its_end)
    with open(answer, "rb") as file, server.stdout as output:  # type: ignore[union-attr]
        in_time = select.select([file], [], [], START_SECONDS)[0]
        port = file.read() if in_time else b""
        if port:
            return server, int(port)
        server.kill()
        server.wait()
        said = output.read() if in_time else f"it takes more than {START_SECONDS:.0f} s".encode()
    why = said.decode(errors="backslashreplace").strip().splitlines()[-1:]  # of a traceback, the error
    raise PlatformError(
        f"Horovod's rendezvous server does not start: {''.join(why) or 'it ended without a word'}",
        hint="Does horovodrun work in this image? Else use the implementation cloudtrain.",
    )


def horovod_environment(
    slot: RankSlot, host: str, rendezvous: tuple[str, int], interface: str
) -> dict[str, str]:
    """What Horovod's ``init`` reads in a rank, as ``horovodrun --gloo`` sets it (``horovod/runner/gloo_run.py``).

    Args:
        host: the name of the rank's host.
        rendezvous: address and port of the rendezvous server.
        interface: the network interface that ranks talk over.
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
