"""Runs programs as real ranks: as processes that rendezvous over Gloo, and under mpirun of Open MPI 4 and 5."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import warm_python

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
MPIRUN_5 = str(Path(sys.executable).with_name("mpirun"))
LIBMPI_4 = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
"""By default, mpi4py loads Open MPI 5 from its own environment."""


@dataclass(frozen=True)
class Way:
    """How ranks are started: by ``mpirun``; if that is empty, as processes with their own environment variables."""

    backend: str
    mpirun: str = ""
    environment: dict[str, str] = field(default_factory=dict)


WAYS = {
    "gloo": Way("gloo"),
    "mpi-4": Way("mpi", "/usr/bin/mpirun", {"MPI4PY_LIBMPI": LIBMPI_4}),
    "mpi-5": Way("mpi", MPIRUN_5),
}
MPI_WAYS = [name for name, way in WAYS.items() if way.mpirun]
_LOCAL_MPI = {
    **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    **dict.fromkeys(("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
}
_MPI_OPTIONS = ["--oversubscribe", "--bind-to", "none", "--mca", "btl_tcp_if_include", "lo"]


@dataclass(frozen=True)
class Ended:
    """The result of mpirun, or of all ranks."""

    returncode: int
    output: str
    """stdout and stderr."""


def run_ranks(way: str, count: int, program: str, *arguments: str, warm: bool = False) -> Ended:
    """Run a program of `PROGRAMS`, with the backend as its first argument, as ``count`` ranks until they end.

    A ``way`` that is not in `WAYS` uses MPI without mpirun. With ``warm``, ranks without mpirun have imported torch.
    """
    chosen = WAYS.get(way, Way("mpi"))
    named = {name for slot in RankSlot.on_host(0, 1, 1) for name in slot.environment("", 0)}
    base = {name: value for name, value in os.environ.items() if name not in named}
    base |= {"OMP_NUM_THREADS": "1", **chosen.environment}
    command = [str(PROGRAMS / program), chosen.backend, *arguments]
    if chosen.mpirun:
        _check_mpirun(chosen.mpirun)
        command = [chosen.mpirun, *_MPI_OPTIONS, "-n", str(count), sys.executable, *command]
        return _ended([command], [{**base, **_LOCAL_MPI}])
    port = free_port()
    slots = [slot.environment("127.0.0.1", port) for slot in RankSlot.on_host(0, 1, count)]
    places = slots if count > 1 else [{}]
    environments = [{**base, **place} for place in places]
    if warm:
        return _ended([command] * count, environments, warm)
    return _ended([[sys.executable, *command]] * count, environments)


def _ended(commands: list[list[str]], environments: list[dict[str, str]], warm: bool = False) -> Ended:
    def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str] | warm_python.Program:
        if warm:
            return warm_python.start(command, environment, output, output)
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True)

    with tempfile.TemporaryFile("w+") as output:
        processes = list(map(start, commands, environments))
        try:
            codes = [process.wait(120) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        output.seek(0)
        return Ended(next(filter(None, codes), 0), output.read())


def _check_mpirun(mpirun: str) -> None:
    if not os.path.exists(mpirun):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"there is no {mpirun}"
        pytest.skip(f"there is no {mpirun}")
