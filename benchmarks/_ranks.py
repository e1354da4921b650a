"""Two ranks, on this machine or on two hosts, in which contestants take turns in a fair order.

``scripts/build_horovod`` builds the real Horovod in a separate environment, with mpi4py and the same PyTorch. If this
exists, all contestants run in its Python, started with ``mpirun``; otherwise in this Python, without Horovod and
mpi4py. Horovod is shut down between its turns, because its threads communicate every millisecond.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from _common import PEERS, RANK, REPOSITORY, SMOKE_TEST, TEST_FOLDERS, Part, Report, run_parts

RANKS = 2
HOROVOD = PEERS / "horovod" / "bin" / "python"
MPIRUN = "/usr/bin/mpirun"
"""Debian's mpirun, with which `HOROVOD` was built."""
INTERFACE = "eth0"
AGENT = """#!/bin/sh
# mpirun calls it with the name of a host, and a command line for it
shift
exec {inside} sh -c "$*"
"""


def has_horovod() -> bool:
    """Whether the ranks run in the Python with the real Horovod and mpi4py, which is never so in a smoke test."""
    return SMOKE_TEST not in os.environ and HOROVOD.exists() and os.path.exists(MPIRUN)


def run_parts_in_ranks(
    doc: str | None, parts: Mapping[str, Part], *, runs: int, instead: Mapping[str, Part] | None = None
) -> None:
    """Like `run_parts`, with each part in all ranks, which are initialised and have one thread each.

    Args:
        instead: for some parts, functions that start the ranks themselves.
    """
    if RANK:
        import torch

        import cloudtrain.distributed.torch as hvd

        torch.set_num_threads(1)
        hvd.init()
        run_parts(doc, parts, runs=runs)
        return

    started: list[str] = []

    def start(report: Report, given: argparse.Namespace) -> None:
        """Run all parts that ranks run together, once."""
        if not started:
            started.extend(name for name in given.parts or parts if name not in (instead or {}))
            run_in_ranks(started, report, given)

    run_parts(doc, dict.fromkeys(parts, start) | dict(instead or {}), runs=runs)


def run_in_ranks(
    parts: Sequence[str],
    report: Report,
    given: argparse.Namespace,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run parts of this script in all ranks. Raises SystemExit if one fails."""
    if not has_horovod():
        report.missing("Horovod", "scripts/build_horovod builds it")
        report.missing("mpi4py", "scripts/build_horovod builds it")
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **(environ or {})}
    script = _script(parts, given)
    if has_horovod():
        codes = [
            subprocess.run([*_mpirun("--bind-to", "none"), str(HOROVOD), *script], env=environ).returncode
        ]
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = ("127.0.0.1", free.getsockname()[1])
        ranks = [
            subprocess.Popen([sys.executable, *script], env={**environ, **_world(rank, RANKS, address)})
            for rank in range(RANKS)
        ]
        codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(next(code for code in codes if code))


def run_on_hosts(part: str, given: argparse.Namespace, gigabits: float) -> None:
    """Run a part of this script on two linked hosts of this machine, which requires root.

    Args:
        part: the name of the part.
        given: the arguments of the command line.
        gigabits: the bandwidth of a host, in Gbit/s.

    Raises:
        NetworkError: such hosts cannot be created on this machine.
        SystemExit: a rank failed.
    """
    sys.path += TEST_FOLDERS
    from host_network import Network

    with tempfile.TemporaryDirectory() as folder, Network(RANKS, Path(folder)) as network:
        for machine in network.machines:
            shape = f"tc qdisc add dev {INTERFACE} root tbf rate {gigabits}gbit burst 256kb latency 50ms"
            subprocess.run(machine.command(shape.split()), check=True)
        first, second = network.machines
        script, address = _script([part], given), (first.name, 29500)
        environ = {
            **os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE,
            "GIGABITS": f"{gigabits:g}", "CLOUDTRAIN_RANKS_KEY": secrets.token_hex(),
        }  # fmt: skip
        if has_horovod():
            agent = Path(folder, "agent")
            agent.write_text(AGENT.format(inside=" ".join(second.command(()))))
            agent.chmod(0o700)
            hosts = ("--host", f"{first.name},{second.name}", "--mca", "plm_rsh_agent", str(agent))
            link = [
                each for name in ("btl_tcp", "oob_tcp") for each in ("--mca", f"{name}_if_include", INTERFACE)
            ]
            passed = [
                each
                for name in (
                    "PYTHONPATH",
                    "OMP_NUM_THREADS",
                    "GLOO_SOCKET_IFNAME",
                    "GIGABITS",
                    "CLOUDTRAIN_RANKS_KEY",
                )
                for each in ("-x", name)
            ]
            master = ("-x", f"MASTER_ADDR={address[0]}", "-x", f"MASTER_PORT={address[1]}")
            command = [*_mpirun(*hosts, *link, *passed, *master), str(HOROVOD), *script]
            codes = [subprocess.run(first.command(command), env=environ).returncode]
        else:
            ranks = [
                subprocess.Popen(
                    machine.command([sys.executable, *script]), env={**environ, **_world(rank, 1, address)}
                )
                for rank, machine in enumerate(network.machines)
            ]
            codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(next(code for code in codes if code))


def _script(parts: Sequence[str], given: argparse.Namespace) -> list[str]:
    flags = [f"--{flag}" for flag in ("quick", "json") if getattr(given, flag)]
    return [str(Path(sys.argv[0]).resolve()), *parts, "--runs", str(given.runs), *flags]


def _world(rank: int, on_host: int, address: tuple[str, int]) -> dict[str, str]:
    return {
        "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank % on_host),
        "LOCAL_WORLD_SIZE": str(on_host), "MASTER_ADDR": address[0], "MASTER_PORT": str(address[1]),
    }  # fmt: skip


def _mpirun(*options: str) -> list[str]:
    # Waiting ranks yield their core to working ones. Otherwise, Horovod's two threads per rank take 20 times as long
    # as soon as the machine has other work.
    yields = ["--mca", "mpi_yield_when_idle", "1"]
    return [MPIRUN, "--allow-run-as-root", "-np", str(RANKS), *yields, *options]


@contextmanager
def running(name: str) -> Iterator[None]:
    """Run a turn of this contestant."""
    if name != "Horovod":
        yield
        return
    import horovod.torch as horovod
    from mpi4py import MPI

    assert MPI.Is_initialized()  # by mpi4py, which keeps it initialised; Horovod alone would finalize MPI
    horovod.init()
    yield
    horovod.shutdown()


def take_turns(
    contestants: Mapping[str, Callable[[], object]], calls: int, rounds: int
) -> dict[str, Sequence[float]]:
    """The seconds per call of each contestant, by round.

    The first contestant changes from round to round. Each turn starts with uncounted calls, and the benchmark with an
    uncounted round.
    """
    import cloudtrain.distributed.torch as hvd

    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with running(name):
                contestants[name]()
                contestants[name]()
                hvd.barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    contestants[name]()
                took = (time.perf_counter() - start) / calls
            if turn:
                seconds[name].append(took)
    return seconds
